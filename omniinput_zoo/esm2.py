"""ESM-2's architecture with random weights, to try protein models without a download.

``python -m omniinput_hpc.zoo.esm2`` writes the shape of the smallest one (8 million weights) and
its tokenizer. Facebook's trained weights (``hf download facebook/esm2_t6_8M_UR50D``) take its
place. `sharpness` multiplies all matrices: without it a random network predicts nearly the same for
every input.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from omniinput_zoo import new_parser

TOKENS = (
    "<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWCXBUZO.-", "<null_1>", "<mask>",
)  # fmt: skip
SIZES: dict[str, Any] = {"hidden_size": 320, "num_hidden_layers": 6, "num_attention_heads": 20}


def make(folder: Path, sharpness: float, seed: int, **sizes: Any) -> Any:
    """Write the model and its tokenizer to a folder, and return transformers' network."""
    import torch
    from transformers import EsmConfig, EsmForMaskedLM

    torch.manual_seed(seed)
    sizes = SIZES | sizes
    network = EsmForMaskedLM(
        EsmConfig(
            vocab_size=len(TOKENS), mask_token_id=TOKENS.index("<mask>"), pad_token_id=1,
            position_embedding_type="rotary", token_dropout=True, max_position_embeddings=1026,
            intermediate_size=4 * sizes["hidden_size"], **sizes,
        )
    ).eval()  # fmt: skip
    for parameter in network.parameters():
        if parameter.dim() > 1:
            parameter.data *= sharpness
    network.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(TOKENS))
    settings = {"tokenizer_class": "EsmTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return network


def main() -> int:
    """Run ``python -m omniinput_hpc.zoo.esm2``."""
    parser = new_parser("esm2", __doc__, "esm2-8m-random")
    parser.add_argument("--sharpness", type=float, default=3.0, help="default: %(default)s")
    args = parser.parse_args()
    network = make(args.output, args.sharpness, args.seed)
    print(f"{sum(p.numel() for p in network.parameters()):,} weights in {args.output}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
