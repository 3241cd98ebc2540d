"""The report: one self-contained HTML page about runs, for the screen or for paper.

`content` estimates, `sections` chooses what to report, `page` fills the templates and draws.
"""

import omniinput_hpc.plots  # noqa: F401  (before matplotlib: MPLBACKEND may be wrong)
