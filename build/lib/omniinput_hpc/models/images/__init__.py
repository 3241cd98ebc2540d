"""Image classifiers: z is a logit of a network, or made from its logits."""
