"""Image classifiers: z is a logit of a network, or computed from its logits."""
