"""Progress: what a bar is told in total, from several threads."""

from __future__ import annotations

import threading

from zib.sim import run


def test_the_bar_is_told_of_every_step():
    told = []
    tick, finish = run._now_and_then(told.append)

    def work(single):
        for _ in range(1000):
            tick(1 if single else 7, 0.0)

    threads = [threading.Thread(target=work, args=(single,)) for single in (True, True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    finish()
    assert sum(told) == 2 * 1000 + 7 * 1000
    assert min(told) >= 0


def test_between_two_drawings_there_is_a_pause():
    told = []
    tick, finish = run._now_and_then(told.append)
    for _ in range(1000):
        tick(1)
    assert len(told) < 10
    finish()
    assert sum(told) == 1000


def test_a_bar_is_drawn_on_a_terminal_only(monkeypatch, capsys):
    with run.showing(True, 10) as tick:
        tick(10)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    with run.showing(True, 10) as tick:
        for _ in range(10):
            tick(1)
    assert "10/10" in capsys.readouterr().err
