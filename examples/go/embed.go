// embed.go - vectors from several goroutines, in Go with cgo.
//
// cgo reads the header; there is no C code here. Texts are copied to C memory for the time of a call, because
// pointers to Go memory must not lie in it.
//
//	CGO_CFLAGS=-Iinclude CGO_LDFLAGS=-Lbuild/lib go run examples/go/embed.go sentence-transformers/all-MiniLM-L6-v2
package main

/*
#cgo LDFLAGS: -lgpuserve
#include <gpuserve/gpuserve.h>
#include <stdlib.h>
*/
import "C"

import (
	"fmt"
	"os"
	"sync"
	"unsafe"
)

// Error is what a call of the library reports.
type Error struct {
	Status  int
	Message string
	Hint    string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s (%s)", C.GoString(C.gpuserve_status_name(C.gpuserve_status(e.Status))), e.Message, e.Hint)
}

func newError() C.gpuserve_error {
	var raw C.gpuserve_error
	raw.struct_size = C.uint32_t(unsafe.Sizeof(raw))
	return raw
}

func check(status C.gpuserve_status, raw *C.gpuserve_error) error {
	if status == C.GPUSERVE_OK {
		return nil
	}
	return &Error{int(status), C.GoString(&raw.message[0]), C.GoString(&raw.hint[0])}
}

// Model may be used by any number of goroutines. Close it once, after the last call.
type Model struct {
	handle *C.gpuserve_model
}

// Open loads a model from a directory or from the Hugging Face cache.
func Open(path string) (*Model, error) {
	raw, name := newError(), C.CString(path)
	defer C.free(unsafe.Pointer(name))
	model := &Model{}
	if err := check(C.gpuserve_model_open(&model.handle, nil, name, nil, &raw), &raw); err != nil {
		return nil, err
	}
	return model, nil
}

// Close releases the model.
func (m *Model) Close() {
	C.gpuserve_model_close(&m.handle)
}

// Dim is the length of a vector.
func (m *Model) Dim() int {
	return int(C.gpuserve_model_dim(m.handle))
}

// Embed returns one vector for each text.
func (m *Model) Embed(texts []string) ([][]float32, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	pointers := C.malloc(C.size_t(len(texts)) * C.size_t(unsafe.Sizeof((*C.char)(nil))))
	defer C.free(pointers)
	list := unsafe.Slice((**C.char)(pointers), len(texts))
	for i, text := range texts {
		list[i] = C.CString(text)
		defer C.free(unsafe.Pointer(list[i]))
	}
	raw, dim := newError(), m.Dim()
	all := make([]float32, len(texts)*dim)
	status := C.gpuserve_embed(m.handle, &list[0], C.size_t(len(texts)), (*C.float)(unsafe.Pointer(&all[0])), C.size_t(len(all)), nil, &raw)
	if err := check(status, &raw); err != nil {
		return nil, err
	}
	vectors := make([][]float32, len(texts))
	for i := range vectors {
		vectors[i] = all[i*dim : (i+1)*dim]
	}
	return vectors, nil
}

// Dot is the product of two vectors of the same length.
func Dot(a, b []float32) float32 {
	return float32(C.gpuserve_dot((*C.float)(unsafe.Pointer(&a[0])), (*C.float)(unsafe.Pointer(&b[0])), C.size_t(len(a))))
}

func run(path string) error {
	const nThreads = 4
	texts := []string{"A man is eating food.", "A man is eating a piece of bread.", "A cheetah runs."}
	model, err := Open(path)
	if err != nil {
		return err
	}
	defer model.Close()
	var wait sync.WaitGroup
	batches, failures := make([][][]float32, nThreads), make([]error, nThreads)
	for i := 0; i < nThreads; i++ {
		wait.Add(1)
		go func(i int) {
			defer wait.Done()
			batches[i], failures[i] = model.Embed(texts)
		}(i)
	}
	wait.Wait()
	for _, failure := range failures {
		if failure != nil {
			return failure
		}
	}
	fmt.Printf("%d threads, %d texts each, %d dimensions\n", nThreads, len(texts), model.Dim())
	fmt.Printf("similarity %.3f %.3f\n", Dot(batches[0][0], batches[1][1]), Dot(batches[2][0], batches[3][2]))
	if _, err = Open("/nowhere"); err == nil {
		return fmt.Errorf("/nowhere is a model")
	}
	fmt.Println("error", err)
	return nil
}

func main() {
	path := "sentence-transformers/all-MiniLM-L6-v2"
	if len(os.Args) > 1 {
		path = os.Args[1]
	}
	if err := run(path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
