"""The shape of the pocket model: a Llama whose every size follows from its depth."""

from __future__ import annotations

from transformers import LlamaConfig

from policies.pocket.corpus import END, PAD

CONTEXT = 2048
HEAD_DIM = 32


def pocket_config(*, depth: int, vocab_size: int) -> LlamaConfig:
    """Return the Llama config of `depth` layers: four heads of 32 for every three layers, tied embeddings.

    Depth 6 gives hidden 256 and about 5 M parameters. vLLM's CPU attention takes a head_dim of 32 or 64.
    """
    heads = max(2, round(depth * 4 / 3))
    return LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=heads * HEAD_DIM,
        intermediate_size=heads * HEAD_DIM * 3,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=HEAD_DIM,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        rms_norm_eps=1e-5,
        initializer_range=0.02,
        pad_token_id=PAD,
        bos_token_id=None,
        eos_token_id=END,
    )
