#!/usr/bin/env python3
"""Print the OpenAPI document of the server: openapi.py VERSION OUTPUT.json

One row for each path, as in the route tables of lib/http/dialects/*.c. A test compares the two, and
schemathesis compares the document with the running server.
"""
import json
import sys

TEXT = {"type": "string", "minLength": 1, "examples": ["A man is eating food."]}
TEXTS = {"type": "array", "items": TEXT, "minItems": 1, "maxItems": 2048}
IDS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
NUMBERS = {"type": "array", "items": {"type": "number"}}
VECTORS = {"type": "array", "items": NUMBERS}
MODEL = {"type": "string", "description": "model name; default: the first model"}
COUNT = {"type": "integer", "minimum": 0}
ANY_INPUT = {"anyOf": [TEXT, TEXTS, IDS, {"type": "array", "items": IDS, "minItems": 1}]}
TRUNCATE = {"type": ["boolean", "null"], "description": "truncate texts over the model's limit; otherwise such texts are rejected"}
OLLAMA_OPTIONS = {"type": ["object", "null"], "description": "options other than num_ctx have no effect", "properties": {
    "num_ctx": {"type": ["integer", "null"], "minimum": 1, "description": "truncate texts at this number of tokens; the model's limit also applies"}}}
SIDE = {"type": ["string", "null"], "enum": ["left", "right", "Left", "Right", None]}
DIMENSIONS = {"type": "integer", "minimum": 1, "description": "keep the first values of each vector, then normalize "
              "if the model or `normalize` normalizes"}
FLAG = {"type": "boolean"}


def record(required=(), **properties):
    """A JSON object schema with these fields."""
    made = {"type": "object", "properties": properties}
    return {**made, "required": list(required)} if required else made


TASK_TYPES = ["RETRIEVAL_QUERY", "RETRIEVAL_DOCUMENT", "SEMANTIC_SIMILARITY", "CLASSIFICATION", "CLUSTERING", "QUESTION_ANSWERING",
              "FACT_VERIFICATION", "CODE_RETRIEVAL_QUERY"]

# llama.cpp's forms of a text, and a list of ids that has texts.
LLAMA_TEXT = {"anyOf": [TEXT, record(("prompt_string",), prompt_string=TEXT, multimodal_data={"type": ["array", "null"], "maxItems": 0}),
                        record(("content",), content={"type": "array", "minItems": 1, "items": record(
                            ("type", "text"), type={"const": "text"}, text=TEXT)})]}
LLAMA_IDS = {"type": "array", "minItems": 1, "prefixItems": [IDS["items"]], "items": {"anyOf": [IDS["items"], TEXT]}}
LLAMA_INPUT = {"anyOf": [LLAMA_TEXT, LLAMA_IDS, {"type": "array", "minItems": 1, "items": {"anyOf": [LLAMA_TEXT, LLAMA_IDS]}}]}
USAGE = record(("prompt_tokens", "total_tokens"), prompt_tokens=COUNT, total_tokens=COUNT)
SCORED = {"type": "array", "items": record(("label", "score"), label={"type": "string"},
                                           score={"type": "number"})}
RANKED = record(("results",), results={"type": "array", "items": record(
    ("index", "relevance_score"), index=COUNT, relevance_score={"type": "number"})})
DOCUMENTS = {"type": "array", "minItems": 1, "items": {"anyOf": [TEXT, record(("text",), text=TEXT)]}}
TENSOR = record(("name", "shape", "datatype"), name={"type": "string"},
                shape={"type": "array", "items": COUNT}, datatype={"type": "string"},
                parameters={"type": "object"}, data={})
TOKENS = {"type": "array", "items": {"type": "array", "items": record(
    ("id", "text", "special"), id=COUNT, text={"type": "string"}, special=FLAG,
    start={"type": ["integer", "null"]}, stop={"type": ["integer", "null"]})}}

# The error format of each dialect.
ERRORS = {
    "openai": record(("error",), error=record(("message", "type"), message={"type": "string"},
                                              type={"type": "string"})),
    "tei": record(("error", "error_type"), error={"type": "string"}, error_type={"enum": [
        "Unhealthy", "Backend", "Overloaded", "Validation", "Tokenizer", "Empty", "Unauthorized", "NotFound"]}),
    "cohere": record(("message",), message={"type": "string"}),
    "jina": record(("message", "detail"), message={"type": "string"}, detail={"type": "string"}),
    "kserve": record(("error",), error={"type": "string"}),
}
STATUSES = {
    "400": "invalid request; the message names the field and the limit",
    "401": "missing or invalid API key",
    "404": "unknown model or path",
    "405": "method not allowed",
    "406": "no acceptable response format",
    "408": "request timeout",
    "409": "the model's vector space differs from `x-gpuserve-space`",
    "411": "length required", "413": "the request exceeds a size limit", "414": "the path is too long",
    "415": "unsupported content type or encoding",
    "422": "the input exceeds the model's limits, or the model does not support the task",
    "424": "the device failed", "429": "the queue is full or the rate limit is reached; see `Retry-After`",
    "431": "the header is too large", "500": "internal server error",
    "501": "not implemented", "503": "the server is draining or the model is not loaded",
    "504": "the client's deadline passed",
}

OUTPUTS = {"type": ["array", "null"], "items": {"type": "string", "enum": ["dense", "sparse", "colbert", "labels"]}, "minItems": 1,
           "description": "outputs of each text, from one pass; default: dense"}
HEADS = {"type": ["array", "null"], "items": {"type": "string"}, "minItems": 1,
         "description": "classifier heads of the model, by name, from one pass; default: the first"}
LABELS = {"type": "array", "items": record(("label", "score"), label={"type": "string"}, score={"type": "number"})}
OUTPUT_MEMBERS = {
    "embedding": {"anyOf": [NUMBERS, {"type": "string", "description": "base64 of little-endian float32"}]},
    "sparse": record(("indices", "values"), indices={"type": "array", "items": COUNT}, values=NUMBERS),
    "colbert": {"type": "array", "items": {"anyOf": [NUMBERS, {"type": "string"}]}},
    "labels": LABELS, "heads": {"type": "object", "additionalProperties": LABELS},
}
SPAN = {"type": "array", "items": COUNT, "minItems": 2, "maxItems": 2, "description": "bytes [begin, end) of the input"}
EMBED_REPLY = record(("object", "data", "model", "usage"), object={"const": "list"},
                     data={"type": "array", "items": record(
                         ("object", "index"), object={"const": "embedding"}, index=COUNT,
                         input={**COUNT, "description": "late chunking: the input of this chunk"}, span=SPAN, tokens=COUNT,
                         spans={"type": "array", "items": SPAN, "description": "windows of the input"},
                         **OUTPUT_MEMBERS)},
                     model={"type": "string"}, usage=USAGE)
AT_LEAST_1 = {"type": "integer", "minimum": 1}
CHUNKING = record(
    ("method",), method={"type": "string", "enum": ["window", "late"]}, by={"type": "string", "enum": ["tokens", "sentence", "spans"]},
    chunk_tokens=AT_LEAST_1, window_tokens=AT_LEAST_1, stride=AT_LEAST_1,
    spans={"type": "array", "description": "late: byte spans of the input, or a list of them for each input"})
VECTOR_TYPE = {"type": "string", "enum": ["float", "float32", "base64", "float16", "int8", "uint8", "binary", "ubinary"],
               "description": "element type of the vectors; base64 is of the bytes, and float16 needs it"}
COHERE_EMBED = record(("texts",), model=MODEL, texts=TEXTS, input_type={"type": "string", "enum": [
    "search_query", "search_document", "classification", "clustering", "image"]},
    embedding_types={"type": "array", "items": {"type": "string", "enum": ["float", "int8", "uint8", "binary", "ubinary", "base64"]},
                     "description": "/v2/embed always keys the reply by type; /v1/embed does if this field is set"},
    truncate={"type": "string", "enum": ["NONE", "START", "END"]}, output_dimension=DIMENSIONS,
    max_tokens={**AT_LEAST_1, "description": "truncate each text at this number of tokens, including special tokens"})
METHOD = {"type": ["string", "null"], "enum": ["cross-encoder", "cosine", "max-sim", None],
          "description": "the score of a document; default: the model's own"}
RERANK = record(("query", "documents"), model=MODEL, query=TEXT, documents=DOCUMENTS,
                top_n=AT_LEAST_1, top_k={**AT_LEAST_1, "description": "alias of `top_n`"}, return_documents=FLAG, raw_scores=FLAG, use_activation=FLAG,
                method=METHOD,
                instruction=TEXT,
                max_tokens_per_doc={**AT_LEAST_1, "description": "truncate each document at this number of tokens"},
                truncation={**FLAG, "description": "false: reject texts over the model's limit"})
INSTANCES = {name: record((name,), signature_name={"type": "string", "enum": ["serving_default"]},
                          **{name: {"type": "array", "minItems": 1, "items": {"anyOf": [TEXT, record(("text",), text=TEXT)]}}})
             for name in ("instances", "examples")}
LABELS = {"type": "array", "items": {"type": "string"}, "minItems": 1}
# By task, in the order of lib/http/dialects/hf.c.
PARAMETERS = {**record(
    candidate_labels={**LABELS, "description": "zero-shot classification: by entailment with an NLI model, by similarity with an embedder"}, hypothesis_template={"type": "string"},
    labels={"anyOf": [LABELS, {"type": "array", "items": LABELS, "minItems": 1}],
            "description": "entities of these labels, or of a list of labels for each text; needs a GLiNER model, which needs them"},
    threshold={"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1, "description": "entities of given labels: the least probability; default: 0.5"},
    nested={**FLAG, "description": "entities of given labels: also those within another one"},
    multi_label={**FLAG, "description": "zero-shot: each label by itself; entities of given labels: more than one label for a span"},
    aggregation_strategy={"type": "string", "enum": ["simple", "none", "first", "average", "max"], "description": "token classification"},
    ignore_labels={"type": ["array", "null"], "items": {"type": "string"}, "description": "token classification; default: O"},
    function_to_apply={"type": "string", "enum": ["sigmoid", "softmax", "none"], "description": "text classification"},
    top_k={**AT_LEAST_1, "description": "text classification: the best labels"},
    normalize=FLAG, prompt_name={"type": ["string", "null"]}, dimensions=DIMENSIONS, encoding_format={"type": "string", "enum": ["float"]},
    truncate=TRUNCATE, truncation_direction=SIDE), "description": "those of the model's task; others are rejected"}
ENTITIES = {"type": "array", "items": record(
    ("score", "word", "start", "end"), entity_group={"type": "string"}, entity={"type": "string"}, index=COUNT, score={"type": "number"},
    word={"type": "string"}, start={**COUNT, "description": "characters of the text"}, end=COUNT)}
TASK_REPLY = {"description": "of entities: a list, or a list for each text of a list; of other tasks: see docs/http.md",
              "anyOf": [ENTITIES, {"type": "array", "items": ENTITIES}, {}]}
KEEP_ALIVE = {"type": ["number", "string", "null"], "description": "seconds or a duration such as 5m, after which the idle model is suspended; "
              "0: at once; negative: never; needs --model-control"}
INFER = record(("inputs",), id={"type": "string"}, parameters={"type": "object"},
               inputs={"type": "array", "minItems": 1, "items": TENSOR},
               outputs={"type": "array", "items": record(("name",), name={"type": "string"}, parameters={"type": "object"})})
INFER_REPLY = record(("model_name", "outputs"), model_name={"type": "string"},
                     outputs={"type": "array", "items": TENSOR})
DURATION = record(("count", "ns"), count=COUNT, ns=COUNT)
STATISTICS = record(("model_stats",), model_stats={"type": "array", "items": record(
    ("name", "version", "last_inference", "inference_count", "execution_count", "inference_stats", "batch_stats"),
    name={"type": "string"}, version={"type": "string"}, last_inference=COUNT, inference_count=COUNT, execution_count=COUNT,
    inference_stats=record(("success", "fail", "queue"), **{name: DURATION for name in (
        "success", "fail", "queue", "compute_input", "compute_infer", "compute_output")}),
    batch_stats={"type": "array", "items": record(
        ("batch_size", "compute_input", "compute_infer", "compute_output"), batch_size=COUNT,
        **{name: DURATION for name in ("compute_input", "compute_infer", "compute_output")})})})

FILE = record(("id", "object", "bytes", "created_at", "filename", "purpose"), id={"type": "string"}, object={"const": "file"},
              bytes=COUNT, created_at=COUNT, expires_at=COUNT, filename={"type": "string"}, purpose={"type": "string"})
BATCH = record(("id", "object", "endpoint", "input_file_id", "status", "request_counts"), id={"type": "string"}, object={"const": "batch"},
               endpoint={"type": "string"}, input_file_id={"type": "string"}, status={"type": "string"},
               request_counts=record(total=COUNT, completed=COUNT, failed=COUNT))
LIST = record(("object", "data", "has_more"), object={"const": "list"}, data={"type": "array"}, has_more=FLAG)
FORM = record(("file", "purpose"), file={"type": "string", "format": "binary"}, purpose={"type": "string", "enum": ["batch"]})

VERTEX = record(("instances",), model=MODEL, instances={"type": "array", "minItems": 1, "items": {"anyOf": [
    TEXT, record(("inputs",), inputs=ANY_INPUT), record(("text",), text=TEXT),
    record(("content",), content=TEXT, task_type={"type": "string", "enum": TASK_TYPES}), record(("query", "texts"), query=TEXT, texts=TEXTS)]}},
    parameters={"type": ["object", "null"], "properties": {
        "truncate": TRUNCATE, "truncation_direction": SIDE, "normalize": FLAG, "prompt_name": {"type": ["string", "null"]}, "dimensions": DIMENSIONS,
        "raw_scores": FLAG, "autoTruncate": FLAG, "outputDimensionality": DIMENSIONS}})
PREDICTIONS = record(("predictions",), predictions={"type": "array"})

# (method, path, dialect, summary, request or None, reply: a schema, or a media type)
SCORES = record(("data",), data={"type": "array"}, usage={"type": "object"})
ROWS = [
    *[("POST", path, "openai", summary, record(
        ("input",), model=MODEL, input=LLAMA_INPUT, encoding_format=VECTOR_TYPE, embedding_type=VECTOR_TYPE,
        output_dtype=VECTOR_TYPE, embed_dtype=VECTOR_TYPE, dimensions=DIMENSIONS, output_dimension=DIMENSIONS, normalize=FLAG, use_activation=FLAG, user={"type": "string"},
        chunking={**CHUNKING, "description": "embed texts over the model's limit whole"},
        late_chunking={**FLAG, "description": "the inputs are the chunks of one text"},
        truncate={"anyOf": [FLAG, {"type": "string", "enum": ["NONE", "START", "END"]}]}, truncation=FLAG, truncation_direction=SIDE,
        truncate_prompt_tokens={"type": "integer", "minimum": -1, "description": "truncate at this number of tokens, including special tokens; -1: the model's limit"},
        prompt_name={"type": ["string", "null"]}, input_type={"type": "string", "description": "query, document, or another prompt of the model"},
        task={"type": "string", "description": "alias of `input_type`: retrieval.query, retrieval.passage"}, outputs=OUTPUTS, heads=HEADS), EMBED_REPLY)
      for path, summary in (("/v1/embeddings", "Embed (OpenAI)"), ("/embeddings", "Alias of /v1/embeddings"),
                            ("/openai/deployments/{model}/embeddings", "Embed (Azure OpenAI)"))],
    *[("GET", path, "openai", summary, None, record(("object", "data"), object={"const": "list"}, data={
        "type": "array", "items": record(("id", "object"), id={"type": "string"}, object={"const": "model"})}))
      for path, summary in (("/v1/models", "List models"), ("/models", "Alias of /v1/models"))],
    *[("POST", path, "openai", "Classify (vLLM)", record(("input",), model=MODEL, input=ANY_INPUT, activation=FLAG, use_activation=FLAG, heads=HEADS,
       truncate_prompt_tokens={"type": "integer", "minimum": -1}), SCORES) for path in ("/classify", "/v1/classify")],
    *[("POST", path, "openai", "Score pairs of texts (vLLM)", record((), model=MODEL, text_1={}, text_2={}, queries={}, documents={}, items={}, data_1={}, data_2={}, activation=FLAG, use_activation=FLAG,
       truncate_prompt_tokens={"type": "integer", "minimum": -1}), SCORES) for path in ("/score", "/v1/score")],
    ("POST", "/pooling", "openai", "Embed (vLLM)", record(("input",), model=MODEL, input=ANY_INPUT, normalize=FLAG, use_activation=FLAG, dimensions=DIMENSIONS,
     encoding_format={"type": "string", "enum": ["float", "base64"]}, truncate_prompt_tokens={"type": "integer", "minimum": -1}), SCORES),
    ("POST", "/embedding", "openai", "Embed (llama.cpp)", record((), model=MODEL, content=LLAMA_INPUT,
     input={**LLAMA_INPUT, "description": "alias of `content`"}, embd_normalize={"type": "integer", "enum": [2, -1]}, truncate=TRUNCATE, truncation_direction=SIDE),
     {"type": "array", "items": record(("index", "embedding"), index=COUNT, embedding=VECTORS)}),
    ("POST", "/v1/files", "openai", "Upload a file (OpenAI)", FORM, FILE),
    ("GET", "/v1/files", "openai", "List files", None, LIST),
    ("GET", "/v1/files/{id}", "openai", "Describe a file", None, FILE),
    ("GET", "/v1/files/{id}/content", "openai", "Read a file", None, "application/octet-stream"),
    ("DELETE", "/v1/files/{id}", "openai", "Delete a file", None, record(("id", "deleted"), id={"type": "string"}, deleted=FLAG)),
    ("POST", "/v1/batches", "openai", "Create a batch (OpenAI)", record(
        ("input_file_id", "endpoint", "completion_window"), input_file_id={"type": "string"}, endpoint={"type": "string"},
        completion_window={"type": "string"}, metadata={"type": ["object", "null"]}, output_expires_after={"type": ["object", "null"]}), BATCH),
    ("GET", "/v1/batches", "openai", "List batches", None, LIST),
    ("GET", "/v1/batches/{id}", "openai", "Describe a batch", None, BATCH),
    ("POST", "/v1/batches/{id}/cancel", "openai", "Cancel a batch", record(), BATCH),
    ("GET", "/v1/models/{model}", "openai", "Describe a model", None, record(
        ("id", "dim", "labels", "token_labels", "max_tokens", "dtype", "device", "space"), id={"type": "string"}, dim=COUNT, labels=COUNT,
        token_labels=COUNT, max_tokens=COUNT, dtype={"type": "string"}, device={"type": "string"}, space={"type": "string"},
        heads={"type": "object", "additionalProperties": COUNT, "description": "labels of each classifier head"})),
    ("POST", "/embed", "tei", "Embed", record(
        ("inputs",), model=MODEL, inputs=ANY_INPUT, truncate=TRUNCATE, truncation_direction=SIDE,
        prompt_name={"type": ["string", "null"]}, normalize=FLAG, dimensions={"type": ["integer", "null"], "minimum": 1}, outputs=OUTPUTS, heads=HEADS),
     {"anyOf": [VECTORS, {"type": "array", "items": record(("index",), index=COUNT, **OUTPUT_MEMBERS)}]}),
    ("POST", "/embed_all", "tei", "Embed each token", record(
        ("inputs",), model=MODEL, inputs=ANY_INPUT, truncate=TRUNCATE, truncation_direction=SIDE,
        prompt_name={"type": ["string", "null"]}), {"type": "array", "items": VECTORS}),
    ("POST", "/embed_sparse", "tei", "Sparse embeddings (SPLADE)", record(
        ("inputs",), model=MODEL, inputs=ANY_INPUT, truncate=TRUNCATE, truncation_direction=SIDE,
        prompt_name={"type": ["string", "null"]}), {"type": "array", "items": {"type": "array", "items": record(
            ("index", "value"), index=COUNT, value={"type": "number"})}}),
    ("POST", "/predict", "tei", "Classify, or with `instances` as /vertex", {"anyOf": [record(("inputs",), model=MODEL, inputs={},
     raw_scores=FLAG, truncate=TRUNCATE, truncation_direction=SIDE), VERTEX]},
     {"anyOf": [SCORED, {"type": "array", "items": SCORED}, PREDICTIONS]}),
    ("POST", "/vertex", "tei", "The task of the model (Google Vertex AI)", VERTEX, PREDICTIONS),
    ("POST", "/invocations", "tei", "The task of the model (SageMaker)", record((), model=MODEL, inputs={}, query=TEXT, texts=TEXTS), {}),
    ("GET", "/info", "tei", "Describe the server and its model", None, record(("model_id", "max_input_length", "version"),
     model_id={"type": "string"}, max_input_length=COUNT, version={"type": "string"})),
    ("POST", "/rerank", "tei", "Rerank texts (TEI) or documents (llama.cpp)", {"anyOf": [record(
        ("query", "texts"), model=MODEL, query=TEXT, texts=TEXTS, raw_scores=FLAG, method=METHOD, return_text=FLAG,
        top_n={"type": "integer", "minimum": 1}, truncate=TRUNCATE, truncation_direction=SIDE), RERANK]}, {}),
    ("POST", "/reranking", "tei", "Alias of /rerank", RERANK, RANKED),
    ("POST", "/similarity", "tei", "Similarity of a sentence to other sentences", record(
        ("inputs",), model=MODEL, inputs=record(("source_sentence", "sentences"), source_sentence=TEXT, sentences=TEXTS),
        parameters={"type": "object"}), NUMBERS),
    ("POST", "/tokenize", "tei", "Tokenize (TEI: inputs; llama.cpp: content)", {"anyOf": [record(
        ("inputs",), model=MODEL, inputs={"anyOf": [TEXT, TEXTS]}, add_special_tokens=FLAG, prompt_name={"type": ["string", "null"]}),
        record(("content",), model=MODEL, content={"type": "string"}, add_special=FLAG, with_pieces=FLAG,
               parse_special={"const": True})]}, {"anyOf": [TOKENS, record(("tokens",), tokens={"type": "array"})]}),
    ("POST", "/decode", "tei", "Decode token ids", record(("ids",), model=MODEL, ids={"anyOf": [IDS, {"type": "array", "items": IDS, "minItems": 1}]},
     skip_special_tokens=FLAG), {"type": "array", "items": {"type": "string"}}),
    ("POST", "/detokenize", "openai", "Decode token ids (llama.cpp)", record(("tokens",), model=MODEL, tokens=IDS),
     record(("content",), content={"type": "string"})),
    ("POST", "/v1/rerank", "jina", "Rerank documents (Cohere v1, Jina)", RERANK, RANKED),
    ("POST", "/v1/reranking", "jina", "Alias of /v1/rerank", RERANK, RANKED),
    ("POST", "/v2/rerank", "cohere", "Rerank documents (Cohere v2)", RERANK, RANKED),
    ("POST", "/v1/embed", "cohere", "Embed (Cohere v1)", COHERE_EMBED, record(("embeddings",), embeddings={})),
    ("POST", "/v2/embed", "cohere", "Embed (Cohere v2)", COHERE_EMBED, record(("embeddings",), embeddings={})),
    ("POST", "/api/embed", "kserve", "Embed (Ollama)", record(("input",), model=MODEL, input={"anyOf": [TEXT, TEXTS]},
     truncate=FLAG, dimensions=DIMENSIONS, options=OLLAMA_OPTIONS, keep_alive=KEEP_ALIVE), record(("model", "embeddings"), model={"type": "string"}, embeddings=VECTORS)),
    ("POST", "/api/embeddings", "kserve", "Embed one text without normalization (Ollama)", record(
        ("prompt",), model=MODEL, prompt=TEXT, options=OLLAMA_OPTIONS, keep_alive=KEEP_ALIVE),
     record(("embedding",), embedding=NUMBERS)),
    ("POST", "/api/show", "kserve", "Describe a model (Ollama)", record((), model=MODEL, name={"type": "string"}),
     record(("details", "model_info", "capabilities"), details={"type": "object"}, model_info={"type": "object"}, capabilities={"type": "array"})),
    ("GET", "/api/ps", "kserve", "List loaded models (Ollama)", None, record(("models",), models={"type": "array"})),
    ("POST", "/api/generate", "kserve", "Refused: no model generates text (Ollama)", record((), model=MODEL), {}),
    ("POST", "/api/chat", "kserve", "Refused: no model generates text (Ollama)", record((), model=MODEL), {}),
    ("GET", "/api/tags", "kserve", "List models (Ollama)", None, record(("models",), models={"type": "array"})),
    ("GET", "/api/version", "kserve", "Server version (Ollama)", None, record(("version",), version={"type": "string"})),
    ("POST", "/", "tei", "Any task of the Hugging Face InferenceClient", record(("inputs",), model=MODEL, inputs={}, parameters=PARAMETERS), TASK_REPLY),
    ("POST", "/models/{model}", "tei", "Alias of / for a named model", record(("inputs",), inputs={}, parameters=PARAMETERS), TASK_REPLY),
    ("GET", "/v2", "kserve", "Describe the server (KServe v2)", None, record(("name", "version"), name={"type": "string"}, version={"type": "string"})),
    ("GET", "/v2/health/live", "kserve", "Liveness", None, record(("live",), live=FLAG)),
    ("GET", "/v2/health/ready", "kserve", "Readiness", None, record(("ready",), ready=FLAG)),
    ("POST", "/v2/repository/index", "kserve", "List models and their states", record(), {"type": "array", "items": record(
        ("name", "state"), name={"type": "string"}, state={"type": "string"})}),
    ("POST", "/v2/repository/models/{model}/load", "kserve", "Load a model", record(), {}),
    ("POST", "/v2/repository/models/{model}/unload", "kserve", "Unload a model", record(), {}),
    ("GET", "/v2/models/stats", "kserve", "Statistics of all models (Triton)", None, STATISTICS),
    *[(method, f"/v2/models/{{model}}{version}{rest}", "kserve", summary, request, reply)
      for version in ("", "/versions/{version}")
      for method, rest, summary, request, reply in (
          ("GET", "", "Model metadata", None, record(("name", "inputs", "outputs"), name={"type": "string"},
           inputs={"type": "array"}, outputs={"type": "array"})),
          ("GET", "/ready", "Model readiness", None, {}),
          ("GET", "/config", "Model configuration (Triton)", None, record(("name",), name={"type": "string"})),
          ("GET", "/stats", "Model statistics (Triton)", None, STATISTICS),
          ("POST", "/infer", "Infer", INFER, INFER_REPLY))],
    *[("POST", f"/v1/models/{{model}}{version}:{verb}", "kserve", f"{verb} (TensorFlow Serving)", INSTANCES[field], reply)
      for version in ("", "/versions/{version}", "/labels/{version}")
      for verb, field, reply in (("predict", "instances", record(("predictions",), predictions={"type": "array"})),
                          ("classify", "examples", record(("result",), result={"type": "array"})))],
    ("GET", "/health", "tei", "Readiness", None, record(("status", "unix"), status={"const": "ok"}, unix={"type": "number"})),
    *[("GET", path, "tei", "Readiness", None, "text/plain") for path in ("/ping", "/healthz", "/readyz")],
    ("GET", "/livez", "tei", "Liveness", None, "text/plain"),
    ("GET", "/health/deep", "tei", "Health check that runs a text through each model", None, record(("models", "ready"), ready=FLAG, models={
        "type": "array", "items": record(("name", "status", "us"), name={"type": "string"}, status={"type": "string"},
                                         us={"type": "integer"}, error={"type": ["string", "null"]})})),
    ("GET", "/metrics", "tei", "Metrics in the Prometheus text format", None, "text/plain"),
    ("GET", "/", "tei", "Web page", None, "text/html"),
    ("GET", "/page.css", "tei", "Style sheet of the web page", None, "text/css"),
    *[("GET", path, "tei", "Script of the web page", None, "text/javascript") for path in ("/base.js", "/charts.js", "/live.js", "/page.js")],
    ("GET", "/docs", "tei", "API documentation as a web page", None, "text/html"),
    ("GET", "/docs.js", "tei", "Script of the web page", None, "text/javascript"),
    ("GET", "/openapi.json", "tei", "OpenAPI document", None, record(("openapi",), openapi={"type": "string"})),
    ("GET", "/api-doc/openapi.json", "tei", "OpenAPI document (TEI path)", None, record(("openapi",), openapi={"type": "string"})),
]


# Of the lists of files and batches.
QUERIES = {path: {"after": {"type": "string", "description": "id of the last entry of the page before"}, "limit": {**AT_LEAST_1, "maximum": most}, **more}
           for path, most, more in (("/v1/files", 10000, {"purpose": {"type": "string"}, "order": {"type": "string", "enum": ["asc", "desc"]}}),
                                    ("/v1/batches", 100, {}))}


def parameters(method, path):
    """Path parameters, which are the names in braces, and those of the query."""
    query = QUERIES.get(path, {}) if method == "GET" else {}
    return [{"name": name, "in": "query", "schema": schema} for name, schema in query.items()] + [{"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
            for name in ("model", "version", "id") if f"{{{name}}}" in path]


# Paths that reply JSON lines or an Arrow stream to a client that accepts them.
STREAMED = ("/v1/embeddings", "/embeddings", "/openai/deployments/{model}/embeddings", "/embed", "/invocations")
# Paths of two dialects: the fields of the request decide whose errors it gets.
OF_LLAMA_TOO = ("/rerank", "/reranking", "/tokenize")


def operation(method, path, dialect, summary, request, reply):
    """One row as an OpenAPI operation."""
    if dialect not in ERRORS:
        sys.exit(f'openapi.py: {method} {path}: ERRORS has no form of errors "{dialect}"')
    media, schema = (reply, {"type": "string"}) if isinstance(reply, str) else ("application/json", reply)
    responses = {"200": {"description": "success", "content": {media: {"schema": schema}}}}
    if path in STREAMED:
        responses["200"]["content"]["application/x-ndjson"] = {"schema": {"type": "string", "description": "a line for each text"}}
        responses["200"]["content"]["application/vnd.apache.arrow.stream"] = {"schema": {
            "type": "string", "format": "binary", "description": "Arrow IPC stream with the columns index (uint32) and embedding (fixed-size list)"}}
    errors = [{"$ref": f"#/components/schemas/{name}_error"} for name in (dialect, *(("openai",) if path in OF_LLAMA_TOO else ()))]
    error = errors[0] if len(errors) == 1 else {"anyOf": errors}
    for status, text in STATUSES.items():
        responses[status] = {"description": text, "content": {"application/json": {"schema": error}}}
    if path in ("/v2/health/live", "/v2/health/ready") or path.endswith("/ready"):
        responses["503"]["content"]["application/json"]["schema"] = {}
    made = {"tags": [dialect], "summary": summary, "responses": responses,
            "operationId": f"{method.lower()} {path}"}
    if parameters(method, path):
        made["parameters"] = parameters(method, path)
    if request is not None:
        made["requestBody"] = {"required": True, "content": {
            "multipart/form-data" if request is FORM else "application/json": {"schema": request}}}
        if path.endswith("/infer"):
            made["description"] = ("Supports the binary tensor data extension for inputs and outputs: "
                                   "`Inference-Header-Content-Length` and `binary_data_size`.")
    return made


def main():
    version, output = sys.argv[1:]
    paths = {}
    for row in ROWS:
        paths.setdefault(row[1], {})[row[0].lower()] = operation(*row)
    with open(output, "w", encoding="utf-8") as file:
        json.dump({
            "openapi": "3.1.0",
            "info": {"title": "gpuserve", "version": version, "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
                     "description": "Text embeddings, classification and reranking, with the APIs of existing clients."},
            "security": [{"bearer": []}, {}],
            "paths": paths,
            "components": {"securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
                           "schemas": {f"{name}_error": schema for name, schema in ERRORS.items()}},
        }, file, separators=(",", ":"))


main()
