"""Scores by people and judges: choosing inputs, the annotation page, score files, judges.

`tasks` and `scores` read and write the files, `choose` draws representative inputs, `display` turns
them into text or pictures, `task_set` mixes them into a blind task file, `server` serves the page,
`judges` are programs that score, `join` turns scores into arrays for the estimators.
"""
