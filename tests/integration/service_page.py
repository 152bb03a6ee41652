"""service_page.py URL FOLDER [PICTURES]: the page of the service at URL in Chromium. PICTURES: a folder for pictures to look at."""
import json
import pathlib
import sys
import time
import urllib.request

from browser import Browser

URL, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
PICTURES = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 and sys.argv[3] else None

WIDER = """[...document.querySelectorAll('body *')].filter(e => !e.closest('pre, .unseen, .skip') && e.getBoundingClientRect().right > innerWidth + 1)
  .map(e => e.tagName + '.' + e.className + ' ' + Math.round(e.getBoundingClientRect().right))"""
# Contrast of text with what is behind it, by WCAG 2: 4.5, large 3.
CONTRAST = """(() => {
  const light = c => { const [r, g, b] = c.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const parts = text => text.match(/[0-9.]+/g).map(Number);
  const behind = e => { for (; e; e = e.parentElement) { const c = parts(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c.slice(0, 3); } return [255, 255, 255]; };
  const poor = [];
  for (const e of document.querySelectorAll('body *')) {
    if (e.closest('svg, .unseen, .skip, [hidden], details:not([open])') || ![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
    const a = light(parts(getComputedStyle(e).color).slice(0, 3)), b = light(behind(e)), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push(e.tagName + '.' + e.className + ' ' + ratio.toFixed(2) + ' ' + e.textContent.trim().slice(0, 30));
  }
  return poor;
})()"""
# What a screen reader needs: names of fields, headings of tables, a name for every drawing that is not hidden from it, one main heading.
NAMELESS = """[...document.querySelectorAll('input:not([type=hidden]), select')].filter(e => !e.labels.length).map(e => 'no label: ' + e.name)
  .concat([...document.querySelectorAll('table')].filter(e => !e.caption || !e.querySelector('th[scope=col]')).map(e => 'no caption or headings: ' + e.textContent.slice(0, 40)))
  .concat([...document.querySelectorAll('svg')].filter(e => e.getAttribute('aria-hidden') !== 'true' && !e.getAttribute('aria-label')).map(e => 'a drawing without a name'))
  .concat([...document.querySelectorAll('a, button')].filter(e => !e.textContent.trim()).map(e => 'nothing to read: ' + e.outerHTML.slice(0, 80)))
  .concat(document.querySelectorAll('h1').length === 1 && document.querySelectorAll('main').length === 1 && document.querySelector('nav[aria-label]') ? [] : ['landmarks'])"""


def post(path, body):
    asked = urllib.request.Request(URL + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return json.load(answer)


def state(job):
    with urllib.request.urlopen(f"{URL}/v1/post-training/job/status?job_uuid={job}", timeout=60) as answer:
        return json.load(answer)


rows = [{"prompt": f"{a} + {b} = ", "chosen": str(a + b), "rejected": str(a + b + 1)} for a in range(6) for b in range(6)]
post("/v1/datasets", {"dataset_id": "pairs", "purpose": "post-training/messages", "source": {"type": "rows", "rows": rows}})
post("/v1/post-training/preference-optimize", {
    "job_uuid": "watched", "model": "tiny", "finetuned_model": "watched-dpo", "algorithm_config": {"type": "dpo", "beta": 0.1, "loss_type": "sigmoid"},
    "training_config": {"n_epochs": 1000, "max_steps_per_epoch": 0, "gradient_accumulation_steps": 1, "dtype": "fp32",
                        "data_config": {"dataset_id": "pairs", "batch_size": 1, "shuffle": True, "data_format": "instruct"},
                        "optimizer_config": {"optimizer_type": "adamw", "lr": 3e-3, "weight_decay": 0.0, "num_warmup_steps": 0}}})
browser = Browser(str(FOLDER / "chromium"))
browser.size(1280)
browser.scheme("light")

# --- a job that trains: its curve moves without a reload
browser.open(f"{URL}/jobs/watched")
browser.evaluate("window.same = true")
browser.wait("document.querySelector('#loss polyline')", 90)
first = browser.evaluate("document.querySelector('#loss polyline').getAttribute('points')")
step = "Number((document.querySelector('#state').textContent.match(/step ([0-9,]+)/) || [0, '0'])[1].replace(',', ''))"
seen = browser.evaluate(step)
browser.wait(f"document.querySelector('#loss polyline').getAttribute('points') !== {json.dumps(first)}", 30)
browser.wait(f"{step} > {seen}", 30)
assert browser.evaluate("window.same") is True, "the page was loaded again"
for chart in ("loss", "rate", "rewards", "accuracy"):
    assert "step" in browser.evaluate(f"document.querySelector('#{chart} svg').getAttribute('aria-label')"), chart
assert browser.evaluate("document.querySelectorAll('#memory svg.bar rect').length") > 4
assert "×" in browser.evaluate("document.querySelector('#facts').textContent"), "tokens per second against the prediction"
assert "loss" in browser.evaluate("document.querySelector('#log').textContent")
browser.open(f"{URL}/jobs/watched?rank=1")
assert browser.evaluate("document.querySelector('.ranks [aria-current]').textContent") == "rank 1"

# --- every page, wide and narrow, light and dark
pages = {"queue": "/", "job": "/jobs/watched", "form": "/submit", "nothing": "/jobs/nobody"}
for name, path in pages.items():
    for width in (1280, 390):
        for scheme in ("light", "dark"):
            browser.size(width)
            browser.scheme(scheme)
            browser.open(URL + path)
            assert browser.evaluate("document.documentElement.scrollWidth") <= width, (name, width, browser.evaluate(WIDER))
            assert browser.evaluate(WIDER) == [], (name, width, browser.evaluate(WIDER))
            assert browser.evaluate(CONTRAST) == [], (name, scheme, browser.evaluate(CONTRAST))
            assert browser.evaluate(NAMELESS) == [], (name, browser.evaluate(NAMELESS))
            if PICTURES:
                browser.picture(PICTURES / f"{name}_{width}_{scheme}.png")
browser.said = [line for line in browser.said if "404" not in line or "nobody" not in line]  # that page was asked for
browser.size(1280)
browser.scheme("light")

# --- without its script it reads the same
browser.scripts(False)
browser.open(f"{URL}/jobs/watched")
browser.scripts(True)
assert browser.evaluate("document.querySelectorAll('#loss polyline').length") >= 1
assert browser.evaluate("document.querySelector('noscript') !== null")

# --- by keyboard: the first key leads to the content
browser.open(f"{URL}/")
for kind in ("keyDown", "keyUp"):
    browser.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
assert browser.evaluate("document.activeElement.className") == "skip"
assert browser.evaluate("document.activeElement.getBoundingClientRect().left") >= 0, "it is seen when it has the focus"

# --- cancelled by its button
browser.open(f"{URL}/jobs/watched")
browser.evaluate("document.querySelector('.danger summary').click(); document.querySelector('.danger button').click()")
browser.wait("document.querySelector('#state .state') && document.querySelector('#state .state').textContent === 'cancelled'", 60)
assert state("watched")["state"] == "cancelled"

# --- planned, then submitted
fill = """(() => { const form = document.querySelector('form.fields'); const values = %s;
  for (const name in values) form.elements[name].value = values[name]; [...form.querySelectorAll('button')].find(b => b.value === %s).click(); })()"""
values = {"method": "dpo", "model": "tiny", "dataset_id": "pairs", "job_uuid": "by_hand", "n_epochs": "0", "batch_size": "2", "learning_rate": "1e-3", "dtype": "fp32"}
browser.open(f"{URL}/submit")
browser.evaluate(fill % (json.dumps(values), json.dumps("plan")))
browser.wait("document.querySelector('[role=alert]')")
assert "n_epochs" in browser.evaluate("document.querySelector('[role=alert]').textContent")
assert browser.evaluate("document.querySelector('[name=learning_rate]').value") == "1e-3", "what was typed is kept"
browser.said.clear()  # that answer was 422
browser.evaluate(fill % (json.dumps({"n_epochs": "1"}), json.dumps("plan")))
browser.wait("document.querySelector('#plan-title')")
assert browser.evaluate("document.querySelector('#plan-title .state').textContent") == "fits"
if PICTURES:
    browser.picture(PICTURES / "planned_1280_light.png")
browser.evaluate(fill % ("{}", json.dumps("submit")))
browser.wait("location.pathname === '/jobs/by_hand'")
until = time.monotonic() + 60
while state("by_hand")["state"] not in ("completed", "failed"):
    assert time.monotonic() < until
    time.sleep(0.3)
assert state("by_hand")["state"] == "completed", state("by_hand")["reason"]
browser.open(f"{URL}/jobs/by_hand")  # what it shows now stays
browser.wait("document.querySelector('#checkpoints a')")
browser.evaluate("document.querySelector('#checkpoints a').click()")
browser.wait("location.pathname.includes('/checkpoints/') && document.readyState === 'complete'")
assert browser.evaluate("document.querySelectorAll('a[download]').length") > 0, browser.evaluate("location.href + document.body.textContent")
link = browser.evaluate("document.querySelector('a[download]').href")
with urllib.request.urlopen(link, timeout=60) as answer:
    assert answer.read(), link

# --- nothing was said to the console, nobody else was asked
browser.said = [line for line in browser.said if "422" not in line]
assert browser.said == [], browser.said
others = {one for one in browser.asked if not one.startswith((URL + "/", "about:", "data:"))}
assert others == set(), others
browser.close()
print("service_page: every page holds")
