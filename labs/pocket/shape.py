"""The shape of the pocket model: a Llama whose every size follows from its depth."""

from __future__ import annotations

from transformers import LlamaConfig

from labs.pocket.corpus_batches import END, PAD
from policies.errors import PolicyError

CONTEXT = 2048
HEAD_DIM = 64
ROPE_THETA = 1e6
"""High, so that most of a head's dimensions hardly turn over a prompt and can match content at any distance."""


def pocket_config(*, depth: int, vocab_size: int) -> LlamaConfig:
    """Return the Llama config of `depth` layers: as many heads of 64, tied embeddings.

    Depth 4 gives hidden 256 and 3.9 M parameters. vLLM's CPU attention takes a head_dim of 32 or 64.
    """
    if depth < 2:
        raise PolicyError(f"got depth {depth}; pocket needs at least 2 layers to look anything up")
    heads = max(3, depth)
    return LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=heads * HEAD_DIM,
        intermediate_size=heads * HEAD_DIM * 3,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=HEAD_DIM,
        max_position_embeddings=CONTEXT,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
        tie_word_embeddings=True,
        rms_norm_eps=1e-5,
        initializer_range=0.02,
        pad_token_id=PAD,
        bos_token_id=None,
        eos_token_id=END,
    )
