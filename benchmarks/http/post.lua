-- wrk's requests: LIST texts each (one, unless it is set), in turn from the file that TEXTS names. All
-- of them have as many tokens, so that a fast server and a slow one do the same for each; no two in
-- flight are equal, because equal texts in flight are computed once. BASE64 asks for that form.
-- Prints the figures as JSON at the end.
local requests, n = {}, 0

local function add(texts)
    local more = os.getenv("BASE64") and ',"encoding_format":"base64"' or ""
    local input = #texts == 1 and '"' .. texts[1] .. '"' or '["' .. table.concat(texts, '","') .. '"]'
    requests[#requests + 1] = wrk.format("POST", "/v1/embeddings",
        { ["Content-Type"] = "application/json" }, '{"input":' .. input .. more .. "}")
end

function init(args)
    local size, texts = tonumber(os.getenv("LIST") or "1"), {}
    for text in io.lines(os.getenv("TEXTS")) do
        texts[#texts + 1] = text
        if #texts == size then
            add(texts)
            texts = {}
        end
    end
end

function request()
    n = n % #requests + 1
    return requests[n]
end

function done(summary, latency, requests)
    io.write(string.format(
        '{"requests":%d,"seconds":%.3f,"errors":%d,"p50_us":%d,"p99_us":%d}\n', summary.requests,
        summary.duration / 1e6, summary.errors.status + summary.errors.connect +
        summary.errors.read + summary.errors.write + summary.errors.timeout,
        latency:percentile(50), latency:percentile(99)))
end
