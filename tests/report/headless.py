"""One session of a headless Chromium for the tests of pages."""

import base64
import io
import shutil
import time

import numpy as np
import pytest
from matplotlib.image import imread

from minitf.report.heads_page import write_heads_page

webdriver = pytest.importorskip("selenium.webdriver")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
WIDE, PHONE, NARROW = (1400, 900), (390, 844), (320, 640)


class Browser:
    """One session of a headless Chromium, and pages that were written for it."""

    def __init__(self, folder):
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for flag in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "hide-scrollbars"):
            options.add_argument(f"--{flag}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        # the driver's path is given, so that nothing is downloaded
        service = webdriver.chrome.service.Service(DRIVER)
        self.driver = webdriver.Chrome(options=options, service=service)
        self.folder = folder
        self.written = {}

    def open(self, name, page, lang="en", size=WIDE, link="", **features):
        """Write the page if it is not there, open it, wait until it is ready; returns the seconds that took."""
        path = self.folder / f"{name}.{lang}.html"
        if path not in self.written:
            self.written[path] = write_heads_page(path, page, lang)
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size != WIDE}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        media = [{"name": f"prefers-{name.replace('_', '-')}", "value": value} for name, value in features.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
        self.driver.get("about:blank")  # else a new link would not load the page again
        start = time.perf_counter()
        self.driver.get(path.as_uri() + link)
        deadline = start + 10
        while not self.driver.find_elements("css selector", "body[data-ready]"):
            assert time.perf_counter() < deadline, self.log()
            time.sleep(0.02)
        return time.perf_counter() - start

    def run(self, script, *args):
        return self.driver.execute_script(script, *args)

    def log(self):
        """Errors and warnings of the console since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def pixels(self, selector):
        """(height, width, 3) of a canvas."""
        url = self.run(  # from a copy: reading the page's own canvas twice makes the browser complain
            "const c = document.querySelector(arguments[0]), copy = document.createElement('canvas');"
            "copy.width = c.width; copy.height = c.height; copy.getContext('2d').drawImage(c, 0, 0);"
            "return copy.toDataURL('image/png');",
            selector,
        )
        image = imread(io.BytesIO(base64.b64decode(url.split(",")[1])))
        return np.rint(255 * image[..., :3]).astype(int)

    def cells(self, rows, columns):
        """Colours in the middle of each cell of the large map."""
        found = self.pixels("#map-canvas")
        height, width = found.shape[:2]
        assert height % rows == width % columns == 0, "cells have whole pixels"
        return found[height // rows // 2 :: height // rows, width // columns // 2 :: width // columns]

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0]).textContent", selector)

    def texts(self, selector):
        return self.run("return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", selector)

    def click(self, selector):
        self.run("document.querySelector(arguments[0]).click()", selector)

    def choose(self, selector, value):
        script = "const e = document.querySelector(arguments[0]); e.value = arguments[1];"
        self.run(f"{script} e.dispatchEvent(new Event('input')); e.dispatchEvent(new Event('change'))", selector, value)

    def press(self, selector, *keys):
        element = self.driver.find_element("css selector", selector)
        for key in keys:
            element.send_keys(key)
