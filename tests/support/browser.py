"""Chromium without a window, driven through its debugging pipe (file descriptors 3 and 4, messages of JSON that end in NUL). Collects what the
console said, exceptions, and every address that a page asked for."""
import base64
import json
import os
import select
import shutil
import subprocess
import time


class PageLeft(Exception):
    pass


class Browser:
    def __init__(self, folder):
        program = shutil.which("chromium")
        assert program, "chromium is not there"
        to_child, ours_out = os.pipe()
        ours_in, from_child = os.pipe()
        # The child finds its ends at 3 and 4. They are moved far away first, so that one does not take the other's place.
        high_in, high_out = os.dup2(to_child, 63, inheritable=True), os.dup2(from_child, 64, inheritable=True)
        words = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
                 "--disable-component-update", "--disable-sync", "--hide-scrollbars", f"--user-data-dir={folder}", "--remote-debugging-pipe", "about:blank"]
        line = " ".join(f"'{word}'" for word in words)
        self.process = subprocess.Popen(["bash", "-c", f"exec 3<&{high_in} 4>&{high_out} {high_in}<&- {high_out}>&-; exec {line}"], pass_fds=(high_in, high_out),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for fd in (to_child, from_child, high_in, high_out):
            os.close(fd)
        self.out, self.input, self.rest, self.number = ours_out, ours_in, b"", 0
        self.said, self.asked, self.events, self.session = [], [], [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")

    def _read(self, limit_s):
        """The next message, or nothing in that time."""
        until = time.monotonic() + limit_s
        while b"\0" not in self.rest:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.input], [], [], left)[0]:
                return None
            part = os.read(self.input, 1 << 20)
            assert part, "chromium ended"
            self.rest += part
        text, _, self.rest = self.rest.partition(b"\0")
        message = json.loads(text)
        self._note(message)
        return message

    def _note(self, message):
        method, values = message.get("method"), message.get("params", {})
        self.events.append(method)
        if method == "Network.requestWillBeSent":
            self.asked.append(values["request"]["url"])
        if method == "Runtime.consoleAPICalled" and values["type"] in ("error", "warning", "assert"):
            self.said.append(str([one.get("value") for one in values["args"]]))
        if method == "Runtime.exceptionThrown":
            self.said.append(values["exceptionDetails"]["text"] + str(values["exceptionDetails"].get("exception", {}).get("description")))
        if method == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
            self.said.append(values["entry"]["text"] + " " + values["entry"].get("url", ""))

    def call(self, method, **values):
        self.number += 1
        message = {"id": self.number, "method": method, "params": values}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + 60
        while time.monotonic() < until:
            answer = self._read(60)
            if answer and answer.get("id") == self.number:
                if "navigated or closed" in answer.get("error", {}).get("message", ""):
                    raise PageLeft(method)
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
        raise SystemExit(f"chromium does not answer {method}")

    def open(self, url):
        self.events.clear()
        self.call("Page.navigate", url=url)
        until = time.monotonic() + 60
        while "Page.loadEventFired" not in self.events:
            assert time.monotonic() < until, f"{url} does not load"
            self._read(1)

    def evaluate(self, text):
        answer = self.call("Runtime.evaluate", expression=text, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, (text, answer)
        return answer["result"].get("value")

    def size(self, width, height=900):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 700)

    def scheme(self, name):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def scripts(self, are_on):
        self.call("Emulation.setScriptExecutionDisabled", value=not are_on)

    # A page that is left while it is asked has no answer: the next one is asked again.
    def wait(self, text, limit_s=60):
        until = time.monotonic() + limit_s
        while True:
            try:
                if self.evaluate(f"!!({text})"):
                    return
            except PageLeft:
                pass
            assert time.monotonic() < until, f"never true: {text}"
            time.sleep(0.2)

    def picture(self, path):
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip={"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1})
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
        except (AssertionError, OSError):
            pass
        self.process.wait(timeout=20)
