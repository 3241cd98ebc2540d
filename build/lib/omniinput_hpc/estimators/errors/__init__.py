"""Error bars and convergence: jackknife over lanes, autocorrelation, R-hat."""
