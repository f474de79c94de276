-- wrk's requests: texts of some 12 tokens, every one different, because equal texts in flight are
-- computed once. Prints the figures as JSON at the end.
local thread_count = 0

function setup(thread)
    thread:set("id", thread_count)
    thread_count = thread_count + 1
end

function init(args)
    math.randomseed(4711 + id)
    n = 0
end

function request()
    n = n + 1
    local text = string.format("the quick fox number %d jumps over a dog", id * 1000000 + n)
    return wrk.format("POST", "/v1/embeddings", { ["Content-Type"] = "application/json" },
        '{"input":"' .. text .. '"' .. (os.getenv("BASE64") and ',"encoding_format":"base64"' or "") .. "}")
end

function done(summary, latency, requests)
    io.write(string.format(
        '{"requests":%d,"seconds":%.3f,"errors":%d,"p50_us":%d,"p99_us":%d}\n', summary.requests,
        summary.duration / 1e6, summary.errors.status + summary.errors.connect +
        summary.errors.read + summary.errors.write + summary.errors.timeout,
        latency:percentile(50), latency:percentile(99)))
end
