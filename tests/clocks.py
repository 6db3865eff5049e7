"""A clock that moves when a test says so."""


def stop_clock(monkeypatch, module):
    """Stops the clock of a module that imports `time`; returns a function that adds seconds."""
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])

    def pass_time(seconds):
        now[0] += seconds

    return pass_time
