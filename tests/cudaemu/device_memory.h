/*
 * device_memory.h - device memory of a test, freed by the destructor.
 */
#ifndef GSV_TEST_DEVICE_MEMORY_H
#define GSV_TEST_DEVICE_MEMORY_H

#include <criterion/criterion.h>

#include <cuda_runtime.h>

/** `count` elements: 0xff bytes (NaN as floats), or a copy of the argument. Converts to its
 * pointer. */
template <typename T> class device_memory
{
  public:
    explicit device_memory(size_t count)
    {
        cr_assert_eq(cudaMalloc(&memory_, count * sizeof(T)), cudaSuccess);
    }

    device_memory(const T *from, size_t count) : device_memory(count)
    {
        cr_assert_eq(cudaMemcpy(memory_, from, count * sizeof(T), cudaMemcpyHostToDevice),
                     cudaSuccess);
    }

    device_memory(const device_memory &) = delete;
    device_memory &operator=(const device_memory &) = delete;

    ~device_memory()
    {
        cudaFree(memory_);
    }

    operator T *() const
    {
        return memory_;
    }

  private:
    T *memory_ = nullptr;
};

#endif
