"""Encoders that read a text in both directions, as transformers saves them."""
import torch
import transformers as tf
from reference import BOS, EOS, LENGTHS, TINY, VOCABULARY, heads_of

SMALL = dict(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24,
             max_position_embeddings=33)
ONE = dict(SMALL, num_hidden_layers=1, intermediate_size=16)
ROBERTA = dict(max_position_embeddings=35, pad_token_id=1, bos_token_id=3, eos_token_id=4, type_vocab_size=1)


def all_heads(prefix, kinds=("single", "tokens", "masked")):
    names = {"single": "ForSequenceClassification", "multi": "ForSequenceClassification",
             "regression": "ForSequenceClassification", "tokens": "ForTokenClassification", "masked": "ForMaskedLM"}
    return {kind: getattr(tf, prefix + names[kind]) for kind in kinds}


def roberta(maker):
    config = lambda **more: tf.RobertaConfig(**{**ONE, **ROBERTA, **more})
    heads_of(maker, "roberta", all_heads("Roberta", ("single",)), config, seed=910)


def mpnet(maker):
    config = lambda **more: tf.MPNetConfig(**{**ONE, "max_position_embeddings": 35, "pad_token_id": 1, "bos_token_id": 3,
                                              "eos_token_id": 4, **more})
    heads_of(maker, "mpnet", all_heads("MPNet", ("single", "tokens")), config, seed=911)


def albert(maker):
    config = lambda **more: tf.AlbertConfig(**{**SMALL, "bos_token_id": 3, "eos_token_id": 4, "embedding_size": 16, "inner_group_num": 1, "num_hidden_groups": 1,
                                               "num_hidden_layers": 3, **more})
    maker.write("albert", tf.AlbertModel, config(), pooling="mean", pairs=True)
    maker.write("albert-groups", tf.AlbertModel, config(num_hidden_groups=2, num_hidden_layers=4), pooling="cls")
    heads_of(maker, "albert", all_heads("Albert"), config, dict(TINY, embedding_size=8))


def electra(maker):
    config = lambda **more: tf.ElectraConfig(**{**ONE, "embedding_size": 16, **more})
    maker.write("electra", tf.ElectraModel, config(num_hidden_layers=2), pooling="cls", pairs=True)
    maker.write("electra-same-size", tf.ElectraModel, config(embedding_size=32), pooling="mean")
    heads_of(maker, "electra", all_heads("Electra", ("multi", "tokens", "masked")), config, dict(TINY, embedding_size=8))


def ernie(maker):
    config = lambda **more: tf.ErnieConfig(**{**ONE, "use_task_id": True, "task_type_vocab_size": 3, "type_vocab_size": 4, **more})
    maker.write("ernie", tf.ErnieModel, config(num_hidden_layers=2), pooling="cls", pairs=True)
    maker.write("ernie-no-task", tf.ErnieModel, config(use_task_id=False), pooling="mean")
    heads_of(maker, "ernie", all_heads("Ernie", ("regression", "tokens", "masked")), config)


def megatron_bert(maker):
    config = lambda **more: tf.MegatronBertConfig(**{**ONE, **more})
    maker.write("megatron-bert", tf.MegatronBertModel, config(num_hidden_layers=2), pooling="cls", pairs=True)
    heads_of(maker, "megatron-bert", all_heads("MegatronBert"), config)


def roberta_prelayernorm(maker):
    config = lambda **more: tf.RobertaPreLayerNormConfig(**{**ONE, **ROBERTA, **more})
    maker.write("roberta-prelayernorm", tf.RobertaPreLayerNormModel, config(num_hidden_layers=2), pooling="mean")
    heads_of(maker, "roberta-prelayernorm", all_heads("RobertaPreLayerNorm", ("multi", "tokens", "masked")), config)


def xlm_roberta_xl(maker):
    config = lambda **more: tf.XLMRobertaXLConfig(**{**ONE, **ROBERTA, **more})
    maker.write("xlm-roberta-xl", tf.XLMRobertaXLModel, config(num_hidden_layers=2), pooling="mean")
    heads_of(maker, "xlm-roberta-xl", all_heads("XLMRobertaXL"), config)


def modernbert(maker):
    config = lambda **more: tf.ModernBertConfig(**{**ONE, "local_attention": 8, "pad_token_id": 0, "bos_token_id": 3,
                                                   "eos_token_id": 4, "cls_token_id": 3, "sep_token_id": 4, **more})
    three = ["full_attention", "sliding_attention", "sliding_attention"]
    long = dict(max_position_embeddings=65, num_hidden_layers=4)
    maker.write("modernbert", tf.ModernBertModel, config(**long), pooling="cls", lengths=[*LENGTHS, 65])
    maker.write("modernbert-biases", tf.ModernBertModel,
                config(num_hidden_layers=3, layer_types=three[1:] + three[:1], attention_bias=True, mlp_bias=True, norm_bias=True,
                       hidden_activation="silu"), pooling="mean")
    maker.write("modernbert-single", tf.ModernBertForSequenceClassification, config(
        num_labels=3, problem_type="single_label_classification", classifier_pooling="cls", classifier_bias=True, num_hidden_layers=2))
    maker.write("modernbert-multi", tf.ModernBertForSequenceClassification, config(
        num_labels=4, problem_type="multi_label_classification", classifier_pooling="mean", norm_bias=True,
        classifier_activation="silu"))
    maker.write("modernbert-tokens", tf.ModernBertForTokenClassification, config(**TINY, id2label={0: "O", 1: "B-PER", 2: "I-PER"}))
    maker.write("modernbert-masked", tf.ModernBertForMaskedLM, config(**TINY))
    maker.write("modernbert-regression", tf.ModernBertForSequenceClassification, config(
        **TINY, num_labels=1, problem_type="regression", classifier_pooling="mean"), seed=912)
    maker.write("modernbert-masked-no-bias", tf.ModernBertForMaskedLM, config(**TINY, decoder_bias=False, classifier_bias=True))


def eurobert(maker):
    config = lambda **more: tf.EuroBertConfig(**{**ONE, "num_key_value_heads": 2, "pad_token_id": 0, "mask_token_id": 5,
                                                 "bos_token_id": 3, "eos_token_id": 4, **more})
    maker.write("eurobert", tf.EuroBertModel, config(num_hidden_layers=2), pooling="mean")
    heads_of(maker, "eurobert", all_heads("EuroBert"), config, dict(TINY, num_key_value_heads=1))
    for pooling in ("bos", "mean", "late"):
        maker.write(f"eurobert-multi-{pooling}", tf.EuroBertForSequenceClassification,
                    config(num_labels=2, problem_type="multi_label_classification", classifier_pooling=pooling,
                           num_key_value_heads=1, **TINY))


def rembert(maker):
    config = lambda **more: tf.RemBertConfig(**{**ONE, "input_embedding_size": 16, "output_embedding_size": 24,
                                                "bos_token_id": 3, "eos_token_id": 4, **more})
    maker.write("rembert", tf.RemBertModel, config(num_hidden_layers=2), pooling="cls", pairs=True)
    heads_of(maker, "rembert", all_heads("RemBert"), config, dict(TINY, input_embedding_size=8, output_embedding_size=12))


def mobilebert(maker):
    config = lambda **more: tf.MobileBertConfig(**{
        **SMALL, "embedding_size": 16, "true_hidden_size": 16, "intra_bottleneck_size": 16, "intermediate_size": 32,
        "num_feedforward_networks": 2, **more})
    maker.write("mobilebert", tf.MobileBertModel, config(num_feedforward_networks=4), pooling="mean", pairs=True)
    maker.write("mobilebert-options", tf.MobileBertModel, config(
        key_query_shared_bottleneck=False, use_bottleneck_attention=True, trigram_input=False, normalization_type="layer_norm",
        num_feedforward_networks=1), pooling="cls")
    maker.write("mobilebert-no-bottleneck", tf.MobileBertModel, config(
        use_bottleneck=False, true_hidden_size=32, intra_bottleneck_size=32, num_feedforward_networks=1), pooling="mean")
    heads_of(maker, "mobilebert", all_heads("MobileBert"), config, dict(
        hidden_size=16, embedding_size=8, true_hidden_size=8, intra_bottleneck_size=8, intermediate_size=16, num_attention_heads=2,
        num_hidden_layers=1))
    maker.write("mobilebert-single-no-activation", tf.MobileBertForSequenceClassification,
                config(num_hidden_layers=1, num_labels=2, classifier_activation=False,
                embedding_size=8, true_hidden_size=8, intra_bottleneck_size=8, hidden_size=16, num_attention_heads=2))
    maker.write("mobilebert-masked-words", tf.MobileBertForMaskedLM, config(  # more words than a chunk of the decoder
        vocab_size=2060, num_hidden_layers=1, hidden_size=8, embedding_size=4, true_hidden_size=4, intra_bottleneck_size=4,
        intermediate_size=8, num_attention_heads=2), lengths=(1, 5), seed=905)
    maker.write("mobilebert-narrow-attention", tf.MobileBertModel, config(
        use_bottleneck_attention=True, num_feedforward_networks=3), pooling="mean", seed=902)
    maker.write("mobilebert-same-size", tf.MobileBertModel, config(
        embedding_size=32, true_hidden_size=32, intra_bottleneck_size=32, key_query_shared_bottleneck=False, trigram_input=False, num_hidden_layers=1),
        pooling="mean", seed=903)


def longformer(maker):
    """Without global attention; the windows of most models cover all texts, those of longformer-window do not."""
    config = lambda **more: tf.LongformerConfig(**{**ONE, **ROBERTA, "max_position_embeddings": 66, "attention_window": 64, **more})
    maker.write("longformer", tf.LongformerModel, config(num_hidden_layers=2, attention_window=[64, 64]), pooling="mean", pads=False)
    heads_of(maker, "longformer", all_heads("Longformer"), config, pads=False)
    maker.write("longformer-window", tf.LongformerModel, config(num_hidden_layers=2, attention_window=[8, 8]), pooling="mean",
                pads=False, seed=904)


def big_bird(maker):
    config = lambda **more: tf.BigBirdConfig(**{**ONE, "attention_type": "original_full", "max_position_embeddings": 40, "bos_token_id": 3,
                                                "eos_token_id": 4, "sep_token_id": 4, **more})
    maker.write("big-bird", tf.BigBirdModel, config(num_hidden_layers=2), pooling="cls", pairs=True)
    maker.write("big-bird-options", tf.BigBirdModel, config(use_bias=False, rescale_embeddings=True, attention_type="block_sparse"),
                pooling="mean")
    heads_of(maker, "big-bird", all_heads("BigBird"), config)


def deberta(maker):
    config = lambda **more: tf.DebertaConfig(**{**ONE, "relative_attention": True, "pos_att_type": ["c2p", "p2c"],
                                                "position_biased_input": False, "type_vocab_size": 0,
                                                "max_relative_positions": 12, **more})
    maker.write("deberta", tf.DebertaModel, config(num_hidden_layers=2), pooling="cls")
    maker.write("deberta-c2p", tf.DebertaModel, config(pos_att_type=["c2p"], position_biased_input=True, type_vocab_size=2,
                                                       max_relative_positions=-1), pooling="mean", pairs=True)
    maker.write("deberta-p2c", tf.DebertaModel, config(pos_att_type=["p2c"], embedding_size=16), pooling="mean")
    maker.write("deberta-talking-head", tf.DebertaModel, config(talking_head=True), pooling="mean", seed=901)
    maker.write("deberta-no-relative", tf.DebertaModel, config(relative_attention=False, position_biased_input=True,
                                                               pos_att_type=None), pooling="mean")
    heads_of(maker, "deberta", all_heads("Deberta"), config)


def deberta_v2(maker):
    """deberta-v3 writes share_att_key, norm_rel_ebd and position_buckets; v2-xlarge has a convolution."""
    v3 = dict(relative_attention=True, pos_att_type=["p2c", "c2p"], share_att_key=True, norm_rel_ebd="layer_norm",
              position_buckets=8, position_biased_input=False, type_vocab_size=0, max_relative_positions=-1, pooler_hidden_size=32, max_position_embeddings=35)
    config = lambda **more: tf.DebertaV2Config(**{**ONE, **v3, **more})
    long = dict(max_position_embeddings=65)
    maker.write("deberta-v3", tf.DebertaV2Model, config(num_hidden_layers=2, **long), pooling="cls", lengths=[*LENGTHS, 65])
    maker.write("deberta-v2", tf.DebertaV2Model, config(num_hidden_layers=2, share_att_key=False, position_buckets=-1,
                norm_rel_ebd="none", max_relative_positions=12), pooling="mean")
    maker.write("deberta-v2-conv", tf.DebertaV2Model, config(num_hidden_layers=2, conv_kernel_size=3, conv_act="gelu",
                embedding_size=16, position_buckets=6, **long), pooling="mean", lengths=[*LENGTHS, 65])
    maker.write("deberta-v2-conv-tanh", tf.DebertaV2Model, config(conv_kernel_size=3, conv_act="tanh", conv_groups=2), pooling="mean")
    maker.write("deberta-v2-c2p", tf.DebertaV2Model, config(pos_att_type=["c2p"], share_att_key=False, position_biased_input=True,
                type_vocab_size=2), pooling="mean")
    maker.write("deberta-v2-p2c", tf.DebertaV2Model, config(pos_att_type="p2c", share_att_key=False), pooling="mean")
    maker.write("deberta-v2-no-buckets-shared", tf.DebertaV2Model, config(position_buckets=-1, max_relative_positions=6), pooling="mean")
    maker.write("deberta-v2-no-relative", tf.DebertaV2Model, config(relative_attention=False, position_biased_input=True,
                norm_rel_ebd="none", pos_att_type=[]), pooling="mean")
    heads_of(maker, "deberta-v3", all_heads("DebertaV2", ("single", "multi", "tokens", "masked")), config,
             dict(TINY, pooler_hidden_size=16))
    heads_of(maker, "deberta-v3", all_heads("DebertaV2", ("regression",)), config, dict(TINY, pooler_hidden_size=16), seed=913)
    maker.write("deberta-v3-single-relu", tf.DebertaV2ForSequenceClassification,
                config(num_labels=2, pooler_hidden_act="relu", **TINY, pooler_hidden_size=16))


class T5WithEncoder(tf.T5Model):
    """Saved as T5Model; its reference is that of the encoder."""

    @property
    def encoder_only(self):
        return self.encoder


T5WithEncoder.__name__ = "T5Model"  # what the saved configuration says


def t5(maker):
    config = lambda make=tf.T5Config, **more: make(**{
        "vocab_size": VOCABULARY, "d_model": 32, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 4, "pad_token_id": 0,
        "relative_attention_num_buckets": 8, "relative_attention_max_distance": 16, "decoder_start_token_id": 0, **more})
    relu, gated = dict(feed_forward_proj="relu"), dict(feed_forward_proj="gated-gelu")
    maker.write("t5-encoder", tf.T5EncoderModel, config(**relu), pooling="mean")
    maker.write("t5-encoder-gated", tf.T5EncoderModel, config(d_kv=6, relative_attention_num_buckets=32,
                relative_attention_max_distance=128, **gated), pooling="mean", lengths=[*LENGTHS, 80])
    maker.write("mt5-encoder", tf.MT5EncoderModel, config(tf.MT5Config, **gated), pooling="mean")
    maker.write("umt5-encoder", tf.UMT5EncoderModel, config(tf.UMT5Config, **gated), pooling="mean")
    # A whole T5: the decoder's tensors are of no use to an encoder.
    maker.write("t5-whole", T5WithEncoder, config(num_layers=1, num_decoder_layers=1, d_kv=4, d_ff=16, **relu), pooling="mean")
    heads_of(maker, "t5", {"tokens": tf.T5ForTokenClassification}, config, dict(d_model=16, num_heads=2, d_kv=8, d_ff=16, num_layers=1), seed=914)


def clip(maker):
    config = lambda **more: tf.CLIPTextConfig(**{**SMALL, "projection_dim": 24, "max_position_embeddings": 20, "bos_token_id": 46,
                                                 "eos_token_id": 47, "pad_token_id": 1, "hidden_act": "quick_gelu", **more})
    lengths = [2, 7, 20, 16, 5]
    maker.write("clip-text", tf.CLIPTextModelWithProjection, config(), pooling="own", lengths=lengths, pads=False)
    maker.write("clip-text-eos-2", tf.CLIPTextModelWithProjection, config(eos_token_id=2, hidden_act="gelu"), pooling="own",
                lengths=lengths, pads=False)


def bart(maker):
    """The classifier reads the last end token, which need not be the last token, nor the only end token."""
    config = lambda **more: tf.BartConfig(**{
        "vocab_size": VOCABULARY, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 33, "pad_token_id": 0,
        "bos_token_id": BOS, "eos_token_id": EOS, "decoder_start_token_id": EOS, "forced_eos_token_id": EOS, **more})
    ends = torch.tensor([[BOS, 11, EOS, EOS, 12, 13, EOS, 14, 15]])
    nli = dict(id2label={0: "contradiction", 1: "neutral", 2: "entailment"}, problem_type="single_label_classification")
    maker.write("bart", tf.BartModel, config(), pooling="mean", seed=915)
    maker.write("bart-scaled", tf.BartModel, config(encoder_layers=1, scale_embedding=True, activation_function="relu",
                decoder_start_token_id=BOS), pooling="mean", seed=916)
    maker.write("bart-single", tf.BartForSequenceClassification, config(encoder_layers=2, decoder_layers=1, **nli), end=EOS, extra=[ends], scale=1.2,
                seed=917)
    maker.write("bart-multi", tf.BartForSequenceClassification, config(
        d_model=16, encoder_layers=1, decoder_layers=3, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=16,
        decoder_ffn_dim=16, num_labels=4, problem_type="multi_label_classification"), end=EOS, extra=[ends], seed=918)


FAMILIES = [roberta, mpnet, albert, electra, ernie, megatron_bert, roberta_prelayernorm, xlm_roberta_xl, modernbert, eurobert, rembert, mobilebert,
            longformer, big_bird, deberta, deberta_v2, t5, clip, bart]
