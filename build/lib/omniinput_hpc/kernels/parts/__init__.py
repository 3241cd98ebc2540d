"""What several kernels share: categorical draws, gradients, conditionals, random numbers."""
