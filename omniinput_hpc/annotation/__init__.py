"""People's (and judges') scores: choosing inputs, the page, score files, judges.

`tasks` and `scores` read and write the files, `choose` draws representative inputs and `shown`
turns them into text or pictures, `server` serves the page, `judges` score by program.
"""
