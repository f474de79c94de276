/*
 * graph.cpp - CUDA graphs: capture, instantiation, launch, update.
 *
 * A node stores its dependencies: the previous node in its stream, and through events nodes of
 * other streams. In late mode the nodes of a launch run in a random order that respects only these
 * edges, so a missing edge is detected.
 */
#include <algorithm>

#include "state.h"

namespace
{

typedef std::vector<gsv_emu_operation> node_list;

bool may_run(const gsv_emu_operation &node, const std::vector<bool> &done)
{
    return std::all_of(node.after.begin(), node.after.end(), [&](size_t i) { return done[i]; });
}

cudaError_t run_in_order(const node_list &nodes)
{
    for (const gsv_emu_operation &node : nodes) {
        const cudaError_t error = gsv_emu_execute(node, gsv_emu.running, gsv_emu.running_stream);
        if (error != cudaSuccess)
            return error;
    }
    return cudaSuccess;
}

cudaError_t run_shuffled(const node_list &nodes)
{
    std::vector<bool> done(nodes.size());

    for (size_t n = 0; n < nodes.size(); n++) {
        std::vector<size_t> able;
        for (size_t i = 0; i < nodes.size(); i++)
            if (!done[i] && may_run(nodes[i], done))
                able.push_back(i);
        const size_t i = able[gsv_emu_pick(able.size())];
        const cudaError_t error =
            gsv_emu_execute(nodes[i], gsv_emu.running, gsv_emu.running_stream);
        if (error != cudaSuccess)
            return error;
        done[i] = true;
    }
    return cudaSuccess;
}

/* True if all nodes precede the end of the capturing stream. */
bool all_joined(const CUgraph_st &graph, const std::vector<size_t> &tail)
{
    std::vector<bool> reached(graph.nodes.size());

    for (size_t i : tail)
        reached[i] = true;
    for (size_t i = graph.nodes.size(); i-- > 0;) /* edges lead to earlier nodes only */
        if (reached[i])
            for (size_t before : graph.nodes[i].after)
                reached[before] = true;
    return std::find(reached.begin(), reached.end(), false) == reached.end();
}

void leave_capture(gsv_emu_graph_capture *capture)
{
    for (CUstream_st *stream : gsv_emu.streams)
        if (stream->capture == capture) {
            stream->capture = nullptr;
            stream->tail.clear();
        }
    gsv_emu.captures.erase(capture);
}

bool same_shape(const node_list &a, const node_list &b)
{
    if (a.size() != b.size())
        return false;
    for (size_t i = 0; i < a.size(); i++)
        if (a[i].work != b[i].work || a[i].after != b[i].after)
            return false;
    return true;
}

} // namespace

void gsv_emu_capture_operation(CUstream_st *stream, gsv_emu_operation operation)
{
    node_list &nodes = stream->capture->graph->nodes;

    operation.after = stream->tail;
    nodes.push_back(std::move(operation));
    stream->tail = { nodes.size() - 1 };
}

bool gsv_emu_forbidden_in_capture()
{
    bool forbidden = false;

    for (gsv_emu_graph_capture *capture : gsv_emu.captures)
        if (capture->mode == cudaStreamCaptureModeGlobal ||
            (capture->mode == cudaStreamCaptureModeThreadLocal &&
             capture->thread == std::this_thread::get_id()))
            forbidden = capture->invalid = true;
    return forbidden;
}

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    gsv_emu_entry entry("cudaStreamBeginCapture");

    if (entry.failed())
        return entry.error();
    if (!stream || !gsv_emu.streams.count(stream) || stream->capture)
        return entry.finish(cudaErrorStreamCaptureUnsupported);
    stream->capture = new gsv_emu_graph_capture();
    stream->capture->graph = new CUgraph_st();
    stream->capture->origin = stream;
    stream->capture->mode = mode;
    stream->capture->thread = std::this_thread::get_id();
    gsv_emu.captures.insert(stream->capture);
    return entry.finish(cudaSuccess);
}

/* Ends the capture even with a planned failure, as a failing device does. */
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    gsv_emu_entry entry("cudaStreamEndCapture");
    cudaError_t error = cudaSuccess;

    *graph = nullptr;
    if (!stream || !stream->capture || stream->capture->origin != stream)
        return entry.finish(cudaErrorStreamCaptureUnmatched);
    std::unique_ptr<gsv_emu_graph_capture> capture(stream->capture);
    std::unique_ptr<CUgraph_st> captured(capture->graph);
    if (capture->invalid)
        error = cudaErrorStreamCaptureInvalidated;
    else if (!all_joined(*captured, stream->tail))
        error = cudaErrorStreamCaptureUnjoined;
    leave_capture(capture.get());
    if (error == cudaSuccess && !entry.failed()) {
        *graph = captured.release();
        gsv_emu.counters.live_objects++;
    }
    return entry.finish(error);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    gsv_emu_entry entry("cudaStreamIsCapturing");
    const CUstream_st *s = gsv_emu_stream(stream);

    *status = !s->capture           ? cudaStreamCaptureStatusNone
              : s->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                    : cudaStreamCaptureStatusActive;
    return entry.finish(cudaSuccess);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    gsv_emu_entry entry("cudaGraphGetNodes");

    if (entry.failed())
        return entry.error();
    if (nodes) /* opaque values, only for counting */
        for (size_t i = 0; i < std::min(*count, graph->nodes.size()); i++)
            nodes[i] = reinterpret_cast<cudaGraphNode_t>(&graph->nodes[i]);
    *count = graph->nodes.size();
    return entry.finish(cudaSuccess);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    gsv_emu_entry entry("cudaGraphInstantiate");

    *exec = nullptr;
    if (entry.failed())
        return entry.error();
    *exec = new CUgraphExec_st();
    (*exec)->nodes = std::make_shared<node_list>(graph->nodes);
    gsv_emu.counters.live_objects++;
    return entry.finish(cudaSuccess);
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo *info)
{
    gsv_emu_entry entry("cudaGraphExecUpdate");

    *info = cudaGraphExecUpdateResultInfo();
    if (entry.failed())
        return entry.error();
    if (!same_shape(*exec->nodes, graph->nodes)) {
        info->result = cudaGraphExecUpdateErrorTopologyChanged;
        return entry.finish(cudaErrorGraphExecUpdateFailure);
    }
    exec->nodes = std::make_shared<node_list>(graph->nodes);
    return entry.finish(cudaSuccess);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t)
{
    gsv_emu_entry entry("cudaGraphUpload");

    return entry.finish(cudaSuccess);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    gsv_emu_entry entry("cudaGraphLaunch");
    gsv_emu_operation operation = { gsv_emu_work::graph, 0, nullptr, nullptr, {} };

    if (entry.failed())
        return entry.error();
    const std::shared_ptr<const node_list> nodes = exec->nodes;
    operation.run = [nodes] { return gsv_emu.late ? run_shuffled(*nodes) : run_in_order(*nodes); };
    return entry.finish(gsv_emu_enqueue(gsv_emu_stream(stream), std::move(operation)));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    gsv_emu_entry entry("cudaGraphExecDestroy");

    gsv_emu.counters.live_objects -= exec ? 1 : 0;
    delete exec;
    return entry.finish(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    gsv_emu_entry entry("cudaGraphDestroy");

    gsv_emu.counters.live_objects -= graph ? 1 : 0;
    delete graph;
    return entry.finish(cudaSuccess);
}

} // extern "C"
