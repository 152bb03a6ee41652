"""What the benchmarks against PyTorch share: where the programs are, the training data, and a case's plan."""
import os
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("DISTSETUP_BIN") or SOURCE / "build/release/bin")
sys.path.insert(0, str(SOURCE / "tests/oracle"))
import files  # noqa: E402, F401


def write_data(work):
    """The text that both sides train on: this repository's sources, in work/data."""
    (work / "data").mkdir()
    for path in sorted((SOURCE / "src").rglob("*.cc")):
        (work / "data" / f"{path.parent.name}_{path.name}").write_bytes(path.read_bytes())


def make_plan(work, name, run_file, flags=()):
    """The plan of a run file's text and further flags, as work/name/plan.json."""
    (work / f"{name}.yaml").write_text(run_file)
    subprocess.run([BIN / "distsetup", "plan", "--quiet", f"{name}.yaml", *flags, "--output", f"{name}/plan.json"], cwd=work, check=True, stdout=subprocess.DEVNULL)
    return work / name / "plan.json"
