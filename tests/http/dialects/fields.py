"""Every field of the requests of each dialect, by its public specification, and what the server does with it.

test_fields.py sends each field to a running server and compares the outcome; docs/http-fields.md is made from the
same rows (`python3 tests/http/dialects/test_fields.py --write`). A field is a path: `inputs.0.name` is the member
`name` of the first item of `inputs`.

An outcome is one of these:

  works(value, **others)   honoured: the reply has status 200 and differs from the one without the field
  checked(wrong)           honoured; its effect is not in the reply, so a wrong value is refused by name, or in the words `says`
  refused(value)           refused by name, as it would change the result
  nothing(value)           no effect on the result, in the dialect's own server either

`others` are further fields of the request, with the field and without it.
"""
import collections

Outcome = collections.namedtuple("Outcome", "kind value others says")
Endpoint = collections.namedtuple("Endpoint", "dialect path source body fields client")


def works(value, **others):
    return Outcome("honoured", value, others, None)


def checked(wrong, says=None, **others):
    return Outcome("checked", wrong, others, says)


def refused(value, **others):
    return Outcome("refused by name", value, others, None)


def nothing(value, **others):
    return Outcome("no effect", value, others, None)


LONG = "w1 " * 300 + "w2 " * 300  # over the limit of every model here
SPARSE_LONG = "a " * 600 + "b " * 600
OTHER = "w5 w6 w7"
TEXTS = ["w1 w2 w3", "w4"]
MODEL = checked("no-such-model")


def endpoint(dialect, path, source, body, client=None, **fields):
    return Endpoint(dialect, path, source, body, fields, client)


TRUNCATES = {"truncate": works(True, inputs=LONG), "truncation_direction": works("left", inputs=LONG, truncate=True)}
VLLM = {"user": nothing("me"), "request_id": nothing("1"), "priority": nothing(1), "mm_processor_kwargs": nothing({}), "cache_salt": nothing("salt"),
        "padding": refused("max_length"), "truncation_side": refused("left")}
VLLM_TEXT = {"input": works(OTHER), "add_special_tokens": refused(False), **VLLM}
VLLM_CHAT = {"messages": refused([{"role": "user", "content": "w1"}])}
VLLM_SOURCE = "vLLM, vllm/entrypoints/pooling/{base,%s}/protocol.py (commit 020638a6)"
TEI_SOURCE = "text-embeddings-inference, its OpenAPI document (1.7.1) and the types of its router"
COHERE_SOURCE = "Cohere API reference and the package cohere 7.3.1"
LLAMA_SOURCE = "llama.cpp, the README of its server"
HUB_SOURCE = "Hugging Face, huggingface_hub 2.4.0, inference/_generated/types"
TRITON_SOURCE = "KServe v2 (Open Inference Protocol) and Triton's extensions: binary data, classification, schedule policy, sequence, shared memory"
TF_SOURCE = "TensorFlow Serving, RESTful API"
TF = {"signature_name": checked("other")}
TENSOR = {"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": ["w1 w2"]}

ENDPOINTS = [
    endpoint("OpenAI", "/v1/embeddings", "OpenAI API reference, Create embeddings; the package openai 3.52.0", {"input": "w1 w2"},
             "openai.types:EmbeddingCreateParams",
             input=works(OTHER), model=MODEL, dimensions=works(4), encoding_format=works("base64"), user=nothing("me")),
    endpoint("Azure OpenAI", "/openai/deployments/gemma/embeddings", "Azure OpenAI, Embeddings - Create (2024-10-21)", {"input": "w1 w2"},
             input=works(OTHER), dimensions=works(4), encoding_format=works("base64"), user=nothing("me"), input_type=works("query")),
    endpoint("Jina", "/v1/embeddings", "Jina AI, Embeddings API", {"input": "w1 w2"},
             model=MODEL, input=works(OTHER), embedding_type=works("base64"), task=works("retrieval.query"), dimensions=works(4), normalized=works(False),
             late_chunking=checked("x"), truncate=works(True, input=LONG), return_multivector=refused(True)),
    endpoint("Voyage", "/v1/embeddings", "Voyage AI, Text embedding models", {"input": "w1 w2"},
             model=MODEL, input=works(OTHER), input_type=works("query"), truncation=works(True, input=LONG), output_dimension=works(4),
             output_dtype=works("binary"), encoding_format=works("base64")),
    endpoint("vLLM", "/v1/embeddings", VLLM_SOURCE % "embed", {"input": "w1 w2"}, model=MODEL, dimensions=works(4),
             encoding_format=works("base64"), embed_dtype=works("binary"), endianness=refused("big"), use_activation=works(False),
             truncate_prompt_tokens=works(4, input=OTHER), **VLLM_TEXT, **VLLM_CHAT),
    endpoint("vLLM", "/pooling", VLLM_SOURCE % "pooling", {"input": "w1 w2"}, model=MODEL, dimensions=works(4),
             encoding_format=works("base64"), embed_dtype=refused("float16"), endianness=refused("big"), use_activation=works(False),
             task=refused("token_embed"), normalize=works(False), truncate_prompt_tokens=works(4, input=OTHER), **VLLM_TEXT, **VLLM_CHAT),
    endpoint("vLLM", "/classify", VLLM_SOURCE % "classify", {"input": "w1 w2", "model": "multi"},
             model=MODEL, use_activation=works(False), truncate_prompt_tokens=works(-1, input=LONG), **VLLM_TEXT, **VLLM_CHAT),
    endpoint("vLLM", "/score", VLLM_SOURCE % "scoring", {"text_1": "w1 w2", "text_2": TEXTS, "model": "cross"},
             model=MODEL, text_1=works(OTHER), text_2=works([OTHER]), data_1=works(OTHER, data_2=TEXTS), data_2=works([OTHER], data_1="w1"),
             queries=works(OTHER, documents=TEXTS), documents=works([OTHER], queries="w1"), items=works([OTHER], queries="w1"),
             use_activation=works(False), truncate_prompt_tokens=works(-1, text_1=LONG), **VLLM),
    endpoint("vLLM", "/v1/rerank", VLLM_SOURCE % "scoring", {"query": "w1 w2", "documents": TEXTS, "model": "cross"},
             model=MODEL, query=works(OTHER), documents=works([OTHER]), top_n=works(1), use_activation=works(False),
             truncate_prompt_tokens=refused(5), user=nothing("me"), request_id=nothing("1"), priority=nothing(1), mm_processor_kwargs=nothing({}),
             cache_salt=nothing("salt"), padding=refused("max_length"), truncation_side=refused("left")),
    endpoint("llama.cpp", "/embedding", LLAMA_SOURCE, {"content": "w1 w2"}, content=works(OTHER), input=works(OTHER), embd_normalize=works(-1)),
    endpoint("llama.cpp", "/tokenize", LLAMA_SOURCE, {"content": "w1 w2"}, content=works(OTHER), add_special=works(True), parse_special=refused(False),
             with_pieces=works(True)),
    endpoint("llama.cpp", "/detokenize", LLAMA_SOURCE, {"tokens": [5, 6]}, tokens=works([7])),
    endpoint("llama.cpp", "/reranking", LLAMA_SOURCE, {"query": "w1 w2", "documents": TEXTS}, model=MODEL, query=works(OTHER), documents=works([OTHER]),
             top_n=works(1)),
    endpoint("text-embeddings-inference", "/embed", TEI_SOURCE, {"inputs": "w1 w2"},
             inputs=works(OTHER), normalize=works(False), prompt_name=works("query"), dimensions=works(4), **TRUNCATES),
    endpoint("text-embeddings-inference", "/embed_all", TEI_SOURCE, {"inputs": "w1 w2"},
             inputs=works(OTHER), prompt_name=works("query"), **TRUNCATES),
    endpoint("text-embeddings-inference", "/embed_sparse", TEI_SOURCE, {"inputs": "w1 w2", "model": "masked"},
             inputs=works(OTHER), prompt_name=checked("no-such-prompt", says="unknown prompt"), truncate=works(True, inputs=SPARSE_LONG),
             truncation_direction=works("left", inputs=SPARSE_LONG, truncate=True)),
    endpoint("text-embeddings-inference", "/predict", TEI_SOURCE, {"inputs": "w1 w2", "model": "multi"},
             inputs=works(OTHER), raw_scores=works(True), **TRUNCATES),
    endpoint("text-embeddings-inference", "/rerank", TEI_SOURCE, {"query": "w1 w2", "texts": TEXTS, "model": "cross"},
             query=works(OTHER), texts=works([OTHER]), raw_scores=works(True), return_text=works(True), truncate=works(True, query=LONG),
             truncation_direction=works("left", texts=[LONG + "w9"], truncate=True)),
    endpoint("text-embeddings-inference", "/similarity", TEI_SOURCE, {"inputs": {"source_sentence": "w1", "sentences": TEXTS}, "parameters": {}},
             **{"inputs.source_sentence": works(OTHER), "inputs.sentences": works([OTHER]), "parameters.prompt_name": works("query"),
                "parameters.truncate": works(True, inputs={"source_sentence": LONG, "sentences": TEXTS}),
                "parameters.truncation_direction": works("left", inputs={"source_sentence": "w9 " + LONG, "sentences": TEXTS}, parameters={"truncate": True})}),
    endpoint("text-embeddings-inference", "/tokenize", TEI_SOURCE, {"inputs": "w1 w2"},
             inputs=works(OTHER), add_special_tokens=works(False), prompt_name=works("query")),
    endpoint("text-embeddings-inference", "/decode", TEI_SOURCE, {"ids": [2, 5, 6]}, ids=works([7]), skip_special_tokens=works(False)),
    endpoint("text-embeddings-inference", "/v1/embeddings", TEI_SOURCE, {"input": "w1 w2"},
             input=works(OTHER), model=MODEL, dimensions=works(4), encoding_format=works("base64"), user=nothing("me")),
    endpoint("text-embeddings-inference", "/vertex", TEI_SOURCE, {"instances": [{"inputs": "w1 w2"}]},
             **{"instances": works([{"inputs": OTHER}]), "instances.0.truncate": works(True, instances=[{"inputs": LONG}]),
                "instances.0.truncation_direction": works("left", instances=[{"inputs": LONG, "truncate": True}]),
                "instances.0.normalize": works(False), "instances.0.prompt_name": works("query"), "instances.0.dimensions": works(4)}),
    endpoint("Vertex AI", "/vertex", "Google Cloud, Text embeddings API", {"instances": [{"content": "w1 w2"}]},
             **{"instances.0.content": works(OTHER), "instances.0.task_type": works("RETRIEVAL_QUERY"), "instances.0.title": refused("t"),
                "parameters.autoTruncate": works(False, parameters={}, instances=[{"content": LONG}]), "parameters.outputDimensionality": works(4, parameters={})}),
    endpoint("Cohere v1", "/v1/embed", COHERE_SOURCE, {"texts": ["w1 w2"]}, "cohere.base_client:BaseCohere.embed",
             texts=works([OTHER]), images=refused(["data:image/png;base64,"]), model=MODEL, input_type=works("search_query"),
             embedding_types=works(["float"]), truncate=works("START", texts=[LONG])),
    endpoint("Cohere v2", "/v2/embed", COHERE_SOURCE, {"texts": ["w1 w2"], "input_type": "classification"}, "cohere.v2.client:V2Client.embed",
             texts=works([OTHER]), images=refused(["data:image/png;base64,"]), inputs=refused([{"content": [{"type": "text", "text": "w1"}]}]), model=MODEL,
             input_type=works("search_query"), max_tokens=works(4, texts=[OTHER]), output_dimension=works(4), embedding_types=works(["binary"]),
             truncate=works("START", texts=[LONG]), priority=nothing(1)),
    endpoint("Cohere v1", "/v1/rerank", COHERE_SOURCE, {"query": "w1 w2", "documents": TEXTS}, "cohere.base_client:BaseCohere.rerank",
             query=works(OTHER), documents=works([OTHER]), model=MODEL, top_n=works(1), rank_fields=refused(["title"]), return_documents=works(True),
             max_chunks_per_doc=refused(2)),
    endpoint("Cohere v2", "/v2/rerank", COHERE_SOURCE, {"query": "w1 w2", "documents": TEXTS}, "cohere.v2.client:V2Client.rerank",
             query=works(OTHER), documents=works([OTHER]), model=MODEL, top_n=works(1), max_tokens_per_doc=works(1), relevant_spans=refused(True),
             priority=nothing(1)),
    endpoint("Jina", "/v1/rerank", "Jina AI, Reranker API", {"query": "w1 w2", "documents": TEXTS},
             query=works(OTHER), documents=works([OTHER]), model=MODEL, top_n=works(1), return_documents=works(True), return_embeddings=refused(True)),
    endpoint("Voyage", "/v1/rerank", "Voyage AI, Rerankers", {"query": "w1 w2", "documents": TEXTS},
             query=works(OTHER), documents=works([OTHER]), model=MODEL, top_k=works(1), return_documents=works(True),
             truncation=checked("x")),
    endpoint("Ollama", "/api/embed", "Ollama, its API documentation and the package ollama 0.6.3", {"model": "gemma", "input": "w1 w2"}, "ollama._types:EmbedRequest",
             model=MODEL, input=works(OTHER), truncate=works(False, input=LONG), dimensions=works(4), keep_alive=checked("soon"), options=checked(7),
             **{"options.num_ctx": works(4, input=OTHER, options={}), "options.temperature": nothing(1, options={}), "options.seed": nothing(1, options={})}),
    endpoint("Ollama", "/api/embeddings", "Ollama, its API documentation and the package ollama 0.6.3", {"model": "gemma", "prompt": "w1 w2"},
             "ollama._types:EmbeddingsRequest", model=MODEL, prompt=works(OTHER), keep_alive=checked("soon"), options=checked(7)),
    endpoint("Ollama", "/api/show", "Ollama, its API documentation and the package ollama 0.6.3", {"model": "gemma"}, "ollama._types:ShowRequest",
             model=works("masked"), verbose=nothing(False)),
    endpoint("Hugging Face", "/", HUB_SOURCE + "/feature_extraction.py", {"inputs": "w1 w2"},
             "huggingface_hub.inference._generated.types:FeatureExtractionInput",
             inputs=works(OTHER), normalize=works(False), prompt_name=works("query"), **TRUNCATES,
             **{"options": nothing({"wait_for_model": True}), "parameters.normalize": works(False, parameters={}), "parameters.stride": refused(1, parameters={})}),
    endpoint("Hugging Face", "/models/multi", HUB_SOURCE + "/text_classification.py", {"inputs": "w1 w2", "parameters": {}},
             "huggingface_hub.inference._generated.types:TextClassificationParameters",
             inputs=works(OTHER), **{"parameters.function_to_apply": works("none"), "parameters.top_k": works(1)}),
    endpoint("Hugging Face", "/models/tokens", HUB_SOURCE + "/token_classification.py", {"inputs": "w1 w2", "parameters": {"aggregation_strategy": "none"}},
             "huggingface_hub.inference._generated.types:TokenClassificationParameters",
             inputs=works(OTHER), **{"parameters.aggregation_strategy": works("simple"), "parameters.ignore_labels": works(["MISC", "B-PER", "I-PER", "B-LOC", "I-LOC", "O"]),
                                     "parameters.stride": refused(4)}),
    endpoint("Hugging Face", "/", HUB_SOURCE + "/zero_shot_classification.py", {"inputs": "w1 w2", "parameters": {"candidate_labels": ["w3", "w4"]}},
             "huggingface_hub.inference._generated.types:ZeroShotClassificationParameters",
             inputs=works(OTHER), **{"parameters.candidate_labels": works(["w5", "w6"]), "parameters.hypothesis_template": works("w8 {}"),
                                     "parameters.multi_label": works(True)}),
    endpoint("KServe v2, Triton", "/v2/models/gemma/infer", TRITON_SOURCE, {"inputs": [TENSOR]},
             **{"id": works("mine"), "inputs": works([{**TENSOR, "data": [OTHER]}]), "inputs.0.name": checked("OTHER", says="unknown input"), "inputs.0.shape": checked([7]),
                "inputs.0.datatype": checked("FP32", says="is FP32"), "inputs.0.data": works([OTHER]), "inputs.0.parameters.binary_data_size": refused(4),
                "inputs.0.parameters.shared_memory_region": refused("r"),
                "outputs": checked("other"), "outputs.0.name": checked("other", says="unknown output", outputs=[{"name": "embedding"}]),
                "outputs.0.parameters.binary_data": works(True, outputs=[{"name": "embedding"}]),
                "outputs.0.parameters.classification": refused(1, outputs=[{"name": "embedding"}]),
                "outputs.0.parameters.shared_memory_region": refused("r", outputs=[{"name": "embedding"}]),
                "parameters.binary_data_output": works(True), "parameters.sequence_id": refused(7), "parameters.sequence_start": nothing(True),
                "parameters.sequence_end": nothing(True), "parameters.priority": checked(-1), "parameters.timeout": checked(-1),
                "parameters.triton_enable_empty_final_response": nothing(False)}),
    endpoint("TensorFlow Serving, KServe v1", "/v1/models/gemma:predict", TF_SOURCE, {"instances": ["w1 w2"]},
             instances=works([OTHER]), inputs=refused(["w1"]), **TF),
    endpoint("TensorFlow Serving, KServe v1", "/v1/models/multi:classify", TF_SOURCE, {"examples": [{"text": "w1 w2"}]},
             examples=works([{"text": OTHER}]), context=refused({"title": "w1"}), **TF),
    endpoint("SageMaker", "/invocations", TEI_SOURCE, {"inputs": "w1 w2"}, inputs=works(OTHER), normalize=works(False), prompt_name=works("query"), **TRUNCATES),
]
