"""Train a small ViT on scikit-learn's digits, and save it as the hub stores such models."""

import json

import torch
from sklearn.datasets import load_digits
from transformers import ViTConfig, ViTForImageClassification

torch.manual_seed(1)
digits = load_digits()  # 8 x 8 pixels with levels 0 to 16
pictures = torch.tensor(digits.images, dtype=torch.float32)[:, None].expand(-1, 3, -1, -1) / 16
classes = torch.tensor(digits.target)
config = ViTConfig(
    image_size=8,
    patch_size=4,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_labels=10,
)
network = ViTForImageClassification(config)
optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
for _ in range(600):
    batch = torch.randint(len(classes), (64,))
    noise = torch.randn(64, 1, 8, 8) / 2  # so that it sees more than digits
    seen = (pictures[batch] + noise).clip(0, 1)
    loss = network(pixel_values=2 * seen - 1, labels=classes[batch]).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    found = network.eval()(pixel_values=2 * pictures - 1).logits.argmax(1)
print(f"{(found == classes).float().mean():.1%} of the digits are right")
network.save_pretrained("digits-vit")
processor = {
    "image_processor_type": "ViTImageProcessor",
    "size": {"height": 8, "width": 8},
    "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3,
}
with open("digits-vit/preprocessor_config.json", "w") as file:
    json.dump(processor, file)
