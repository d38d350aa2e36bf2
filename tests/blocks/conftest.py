"""How many cells of the property matrix were checked, at the end of a run."""


def pytest_terminal_summary(terminalreporter):
    counts = [
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        for key, value in getattr(report, "user_properties", [])
        if key == "cells"
    ]
    if counts:
        # an interrupted run reports nothing of what was left out: the number is what was checked
        terminalreporter.write_line(f"property matrix: {sum(counts):,} cells in {len(counts)} tests")
