"""Parts that kernels share: categorical draws, gradients, conditionals, random numbers."""
