"""ESM-2's smallest shape: z is the mean pseudo-loss by transformers, token by token."""

import torch
from transformers import AutoTokenizer

from omniinput_hpc.config import MaskedLm
from omniinput_hpc.models.language import masked_lm
from omniinput_hpc.pilot import model_table
from omniinput_zoo import esm2

ACIDS = model_table.AMINO_ACIDS


def test_z_of_proteins_is_that_of_transformers(tmp_path):
    network = esm2.make(tmp_path, sharpness=3.0, seed=1)
    assert sum(p.numel() for p in network.parameters()) == 7_512_474
    table = model_table.of(str(tmp_path), None, 10)
    assert "".join(table["tokens"]) == ACIDS and table["kind"] == "masked-lm"
    model = masked_lm.build(MaskedLm.model_validate(table), "cpu")
    x = torch.randint(20, (3, 8), generator=torch.Generator().manual_seed(1))
    words = AutoTokenizer.from_pretrained(tmp_path)
    losses = []
    for row in x.tolist():
        tokens = words("".join(ACIDS[v] for v in row), return_tensors="pt").input_ids
        assert tokens.shape == (1, 10)
        for site in range(1, 9):
            masked = tokens.clone()
            masked[0, site] = words.mask_token_id
            with torch.no_grad():
                log_p = network(input_ids=masked).logits[0, site].log_softmax(0)
            losses.append(-log_p[tokens[0, site]])
    expected = torch.stack(losses).view(3, 8).mean(dim=1)
    torch.testing.assert_close(model.output(x), expected, rtol=1e-5, atol=0)
    assert expected.std() > 0.03
