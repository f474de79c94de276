/*
 * test_lstm_races.cpp - race check of the LSTM kernel that computes all steps, by the thread
 * sanitizer.
 *
 * Small enough for the sanitizer: 40 units, three sequences, at most three steps; first one block,
 * then two that wait for each other. Any missing barrier or signal is a data race.
 *
 * Not a Criterion program: a race ends it with the sanitizer's status. Other builds only compare
 * the hidden states.
 */
#include <cmath>
#include <cstdio>
#include <vector>

#include "emu.h"
#include "kernels/cuda/compute/lstm_fused.cu"
#include "kernels/cuda/compute/lstm_plan.cu"

namespace
{

const int HIDDEN = 40, UNITS = 64, IN_UP = 64, LD = IN_UP + UNITS;
const int N_SEQUENCES = 3, N_ROWS = 6;
const struct gpuserve_lstm_sequence sequences[N_SEQUENCES] = { { 0, 3, 0, 0 },
                                                               { 3, 2, 1, 0 },
                                                               { 5, 1, 2, 0 } };

/* Copies values to the emulated device. */
template <typename T> T *put(const std::vector<T> &values)
{
    void *at = nullptr;

    if (cudaMalloc(&at, values.size() * sizeof(T)) != cudaSuccess ||
        cudaMemcpy(at, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice) !=
            cudaSuccess)
        return nullptr;
    return static_cast<T *>(at);
}

float some(int i)
{
    return static_cast<float>(i * 37 % 101) / 101.f - 0.5f;
}

float sigmoid(float x)
{
    return 1.f / (1.f + std::exp(-x));
}

struct numbers {
    std::vector<float> weight = std::vector<float>(4 * UNITS * LD);
    std::vector<float> add = std::vector<float>(N_ROWS * 4 * UNITS);
    std::vector<float> bias = std::vector<float>(4 * UNITS);
    std::vector<float> want = std::vector<float>(N_ROWS * HIDDEN);
};

/* Units above HIDDEN are zero, the padding of lstm.cu. */
struct numbers make_numbers()
{
    struct numbers n;

    for (int gate = 0; gate < 4; gate++) {
        for (int unit = 0; unit < HIDDEN; unit++) {
            const int row = gate * UNITS + unit;

            n.bias[row] = some(row + 3);
            for (int i = 0; i < HIDDEN; i++)
                n.weight[row * LD + IN_UP + i] = some(row * 11 + i);
            for (int r = 0; r < N_ROWS; r++)
                n.add[(r * 4 + gate) * UNITS + unit] = some(row * 7 + r * 5);
        }
    }
    for (const struct gpuserve_lstm_sequence &s : sequences) {
        std::vector<float> h(HIDDEN), c(HIDDEN);

        for (int row = s.first; row < s.first + s.length; row++) {
            const std::vector<float> before = h;

            for (int unit = 0; unit < HIDDEN; unit++) {
                float gates[4];

                for (int gate = 0; gate < 4; gate++) {
                    const int at = gate * UNITS + unit;

                    gates[gate] = n.bias[at] + n.add[row * 4 * UNITS + at];
                    for (int i = 0; i < HIDDEN; i++)
                        gates[gate] += n.weight[at * LD + IN_UP + i] * before[i];
                }
                c[unit] = sigmoid(gates[1]) * c[unit] + sigmoid(gates[0]) * std::tanh(gates[2]);
                h[unit] = sigmoid(gates[3]) * std::tanh(c[unit]);
                n.want[row * HIDDEN + unit] = h[unit];
            }
        }
    }
    return n;
}

/* Runs on a device with `n_processors`; returns the error. `team`: number of blocks that share the
 * units, and so wait for each other. */
float run(const struct numbers &n, int n_processors, int *team)
{
    const struct gpuserve_lstm_layer layer = {
        GSV_ELEMENT_F32,    HIDDEN, HIDDEN, 1, IN_UP, UNITS, put(n.weight), put(n.bias),
        GPUSERVE_CELL_LSTM,
    };
    struct gsv_lstm_run of = {};
    struct gsv_lstm_fused fused = {};
    struct gsv_lstm_plan plan;
    float apart = 0;

    if (!gsv_lstm_make_plan(&layer, N_SEQUENCES, n_processors, 200 << 10, &plan))
        return INFINITY;
    *team = plan.unit_blocks;
    of.layer = layer;
    of.out = put(std::vector<float>(N_ROWS * HIDDEN, NAN));
    of.h_n = put(std::vector<float>(N_SEQUENCES * HIDDEN));
    of.c_n = put(std::vector<float>(N_SEQUENCES * HIDDEN));
    of.sequences =
        put(std::vector<struct gpuserve_lstm_sequence>(sequences, sequences + N_SEQUENCES));
    of.n_sequences = N_SEQUENCES;
    of.n_rows = N_ROWS;
    fused.add = put(n.add);
    fused.states = put(std::vector<float>((N_SEQUENCES + N_ROWS) * UNITS));
    fused.counters = put(std::vector<unsigned>(16));
    if (gsv_cuda_lstm_fused_prepare(200 << 10) != cudaSuccess ||
        gsv_cuda_lstm_fused(&of, &fused, &plan, 0, 0, nullptr) != cudaSuccess ||
        cudaDeviceSynchronize() != cudaSuccess) {
        printf("%s\n", gsv_emu_report());
        return INFINITY;
    }
    for (size_t i = 0; i < n.want.size(); i++) {
        const float d = std::fabs(of.out[i] - n.want[i]);

        apart = d <= apart ? apart : d; /* keeps a NaN */
    }
    for (const void *memory :
         { layer.weight, static_cast<const void *>(layer.bias), static_cast<const void *>(of.out),
           static_cast<const void *>(of.h_n), static_cast<const void *>(of.c_n),
           static_cast<const void *>(of.sequences), static_cast<const void *>(fused.add),
           static_cast<const void *>(fused.states), static_cast<const void *>(fused.counters) })
        cudaFree(const_cast<void *>(memory));
    return apart;
}

} // namespace

int main()
{
    const struct numbers n = make_numbers();
    bool together = false;
    int failures = 0;

    for (int n_processors = 1; n_processors <= 4; n_processors *= 2) {
        int team = 0;

        gsv_emu_seed(static_cast<uint64_t>(n_processors));
        const float apart = run(n, n_processors, &team);

        printf("teams of %d blocks: off by %g\n", team, static_cast<double>(apart));
        failures += !(apart < 1e-6f);
        together = together || team > 1;
    }
    return failures || !together;
}
