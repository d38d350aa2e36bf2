"""How many cells of the cache matrix were checked, at the end of a run."""


def pytest_terminal_summary(terminalreporter):
    reports = [report for several in terminalreporter.stats.values() for report in several]
    found = [
        value
        for report in reports
        if getattr(report, "when", "") == "call"
        for key, value in report.user_properties
        if key == "cache cells"
    ]
    if found:
        terminalreporter.write_line(f"cache matrix: {sum(found):,} cells in {len(found)} tests")
