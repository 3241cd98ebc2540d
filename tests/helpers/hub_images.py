"""Small image classifiers of transformers, and their processors' files."""

import json

from transformers import (
    ConvNextConfig,
    MobileNetV2Config,
    MobileViTConfig,
    ResNetConfig,
    ViTConfig,
)

VIT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "patch_size": 4}
STAGES = {"hidden_sizes": [8, 16], "depths": [1, 1]}
MOBILE_VIT = {"hidden_sizes": [8, 8, 8], "neck_hidden_sizes": [8] * 7, "num_attention_heads": 2}
MOBILE_VIT["initializer_range"] = 0.4  # with the default of 0.02 the logits are 0
CONFIGS = {
    "vit": lambda: ViTConfig(image_size=12, intermediate_size=24, num_labels=3, **VIT),
    "resnet": lambda: ResNetConfig(embedding_size=8, layer_type="basic", num_labels=3, **STAGES),
    "convnext": lambda: ConvNextConfig(num_stages=2, num_labels=3, **STAGES),
    "mobilenet": lambda: MobileNetV2Config(depth_multiplier=0.1, image_size=32, num_labels=3),
    "mobilevit": lambda: MobileViTConfig(image_size=32, num_labels=3, **MOBILE_VIT),
}
SHARED = {
    "do_resize": True, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True,
    "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225], "resample": 2,
}  # fmt: skip
PROCESSORS = {
    "vit": {"image_processor_type": "ViTImageProcessor", "size": {"height": 12, "width": 12}},
    "resnet": {
        "image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 12},
        "crop_pct": 0.875,
    },
    "convnext": {"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 16}},
    "mobilenet": {
        "image_processor_type": "MobileNetV2ImageProcessor", "size": {"shortest_edge": 20},
        "do_center_crop": True, "crop_size": {"height": 16, "width": 16},
    },
    "mobilevit": {  # without its do_flip_channel_order, which defaults to true
        "image_processor_type": "MobileViTImageProcessor", "size": {"shortest_edge": 36},
        "do_center_crop": True, "crop_size": {"height": 32, "width": 32},
    },
}  # fmt: skip


def write_processor(folder, keys, **more):
    (folder / "preprocessor_config.json").write_text(json.dumps({**SHARED, **keys, **more}))
