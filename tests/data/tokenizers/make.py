#!/usr/bin/env python3
"""tests/data/tokenizers/make.py: writes the small tokenizers of this folder and what the libraries make of some texts.

Run by hand, with the packages tokenizers 0.23 and sentencepiece 0.2. Every folder gets a tokenizer file and expected.json: for each text
the ids, the offsets as bytes of the text, and the decoded ids, with and without the special tokens around the text.
All texts are our own."""
import json
import pathlib
import sys

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).resolve().parent
SENTENCES = [
    "A plan that fits is better than a plan that almost fits.", "The trainer reads the plan and nothing else.",
    "Every rank keeps a shard of the parameters, of the gradients and of the optimizer's state.",
    "It's 12 o'clock, and we've waited 345 seconds for 6789 tokens.", "def add(a, b):\n    return a + b\n\n\nprint(add(1, 2))  # 3\n",
    "Größe, Höhe und Länge; naïve café, señor, łódź.", "Быстрая лиса прыгает через ленивую собаку.", "今日はいい天気ですね。東京へ行きましょう。",
    "快速的棕色狐狸跳过懒狗。", "빠른 갈색 여우가 게으른 개를 뛰어넘는다.", "सभी मनुष्य समान हैं।", "كل شيء على ما يرام.",
    "for (int i = 0; i < n; ++i) {\n\tsum += x[i];\n}\n", "🙂 👍🏽 👩‍👩‍👧 done",
] * 3
TEXTS = SENTENCES[:14] + [
    "", " ", "   ", "\n", " \n \n  x", "a  b   c", "\u00a0\u3000x\u2028", "don't DON'T we'Ll", "e\u0301 é o\u0308\u0323 \uac00\u11a8 \u1100\u1161",
    "\ufb01 ½ Ⅷ ① ﷺ", "<s>hello</s>", "x<mask> y", "x <mask>y", "say <|go|> now", "<|go|><|go|>", "word wordy word", "\U0001e030\U00010797\u180e\u0378",
    "\u200b\u200d\ufeff", "1234567 ١٢٣ ४५६ ²", "\u2581 \u2581\u2581a", "<0x41>", "\x00\x01\x7f", "x" * 200, "日" * 60, "ab " * 40, "\t\tif x:\r\n",
    "the   the\u3000the", "\U0001f469\u200d\U0001f680", "ẞ İ ſ K", "a\u0323\u0307", "!?.,;:--__", "\u0915\u094d\u0937",
]


def in_bytes(text, offsets):
    ends = [0]
    for character in text:
        ends.append(ends[-1] + len(character.encode()))
    return [[ends[a], ends[b]] for a, b in offsets]


def write_expected(folder, encode, decode):
    rows = []
    for text in TEXTS:
        for special in (False, True):
            ids, offsets = encode(text, special)
            rows.append({"text": text, "special": special, "ids": list(ids), "offsets": offsets, "decoded": decode(ids)})
    lines = ",\n".join(json.dumps(row) for row in rows)
    (folder / "expected.json").write_text(f"[\n{lines}\n]\n")


def write_json(name, tokenizer):
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=True, separators=(",", ":")) + "\n")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def encode(text, special):
        encoding = tokenizer.encode(text, add_special_tokens=special)
        return encoding.ids, in_bytes(text, encoding.offsets)

    write_expected(folder, encode, lambda ids: tokenizer.decode(ids, skip_special_tokens=False))


def added(tokenizer):
    tokenizer.add_special_tokens(["<s>", "</s>", AddedToken("<mask>", lstrip=True, rstrip=False)])
    tokenizer.add_tokens([AddedToken("<|go|>", normalized=False, rstrip=True), AddedToken("word", single_word=True, normalized=True)])
    return tokenizer


def bytes_of_words():
    """As Llama 3: a pattern of its own, words that are tokens whole, NFC."""
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.normalizer = normalizers.NFC()
    pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(SENTENCES, trainers.BpeTrainer(vocab_size=500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    added(t)
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", t.token_to_id("<s>"))])])
    return t


def bytes_with_prefix():
    """As RoBERTa and GPT-2: a blank before the text, offsets without blanks, digits apart, NFKC and lower case."""
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Punctuation("contiguous"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=True)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(SENTENCES, trainers.BpeTrainer(vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    added(t)
    t.post_processor = processors.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>")), trim_offsets=True)
    return t


def blanks_as_characters():
    """As Llama 2: no pre-tokenizer, unknown characters as bytes."""
    alphabet = [f"<0x{byte:02X}>" for byte in range(256)]
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    steps = [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    t.normalizer = normalizers.Sequence(steps)
    t.pre_tokenizer = pre_tokenizers.Metaspace(split=True)
    t.train_from_iterator(SENTENCES[:9], trainers.BpeTrainer(vocab_size=560, special_tokens=["<unk>"] + alphabet))
    t.pre_tokenizer = None
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    state = json.loads(t.to_str())
    state["added_tokens"] = state["added_tokens"][:1]
    return added(Tokenizer.from_str(json.dumps(state)))


def suffixes():
    """As CLIP and OpenAI's GPT: a suffix at the end of a word, unknown characters as one token."""
    t = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", fuse_unk=False))
    t.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Strip()])
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    t.decoder = decoders.BPEDecoder("</w>")
    t.train_from_iterator(SENTENCES[:7], trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>"], end_of_word_suffix="</w>"))
    return t


def unigram():
    """As XLM-R and T5: scores, SentencePiece's rules as Precompiled, blanks as characters."""
    model = sentencepiece_model("unigram", byte_fallback=False, normalization_rule_tsv=str(HERE / "rules.tsv"))
    t = Tokenizer(models.Unigram([(piece.piece, piece.score) for piece in model.pieces], unk_id=0))
    t.normalizer = normalizers.Sequence([normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    t.decoder = decoders.Metaspace(prepend_scheme="first")
    t.add_special_tokens(["<s>", "</s>"])
    t.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", t.token_to_id("</s>"))])
    return t


def sentencepiece_model(kind, **options):
    import io

    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(line for text in SENTENCES for line in text.splitlines()), model_writer=out,
                                             model_type=kind, vocab_size=500, hard_vocab_limit=False, minloglevel=2, num_threads=1,
                                             character_coverage=1.0, **options)
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(out.getvalue())
    return model


def write_sentencepiece(name, kind, texts=(), **options):
    import sentencepiece

    folder = HERE / name
    folder.mkdir(exist_ok=True)
    model = sentencepiece_model(kind, **options)
    model.trainer_spec.ClearField("input")
    model.normalizer_spec.ClearField("normalization_rule_tsv")  # a path; the rules themselves are in the model
    (folder / "tokenizer.model").write_bytes(model.SerializeToString())
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    rows = []
    for text in [*TEXTS, *texts]:
        ids = processor.encode(text)
        rows.append({"text": text, "special": False, "ids": ids, "offsets": None, "decoded": processor.decode(ids)})
    (folder / "expected.json").write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


MADE = {"bytes_of_words": bytes_of_words, "bytes_with_prefix": bytes_with_prefix, "blanks_as_characters": blanks_as_characters,
        "suffixes": suffixes, "unigram": unigram}
MADE_BY_SENTENCEPIECE = {
    "sentencepiece_bpe": dict(kind="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
                              user_defined_symbols=["<|go|>", "wordy"]),
    "sentencepiece_unigram": dict(kind="unigram", byte_fallback=False, normalization_rule_tsv=str(HERE / "rules.tsv")),
    # Runs of blanks, and pieces that begin alike: a longer run or word can be cut in several ways.
    "sentencepiece_pieces": dict(kind="unigram", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
                                 user_defined_symbols=["\u2581" * n for n in (2, 3, 5, 8)] + ["ab", "abc", "bcd", "\u2581abc", "\t\t"],
                                 texts=[" " * n + "abcd" for n in range(1, 24)] + ["abcabcd  abcd\t\t\tabc", "a" + " " * 31 + "b", "aabbccdd"]),
}

if __name__ == "__main__":
    for name in sys.argv[1:] or [*MADE, *MADE_BY_SENTENCEPIECE]:
        if name in MADE:
            write_json(name, MADE[name]())
        else:
            write_sentencepiece(name, **MADE_BY_SENTENCEPIECE[name])
    print("tokenizers", tokenizers.__version__)
