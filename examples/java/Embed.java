// Embed.java - vectors from several threads, in Java with JNA (Debian: libjna-java).
//
// The interface Library below is all that this program needs of <gpuserve/gpuserve.h>. JNA finds
// libgpuserve.so through jna.library.path or the loader's path.
//
//     java -cp /usr/share/java/jna.jar -Djna.library.path=build/lib examples/java/Embed.java MODEL

import com.sun.jna.Memory;
import com.sun.jna.Native;
import com.sun.jna.Pointer;
import com.sun.jna.Structure;
import com.sun.jna.ptr.PointerByReference;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

public class Embed {
    /** size_t, 8 bytes on every supported machine. */
    interface Library extends com.sun.jna.Library {
        int gpuserve_model_open(PointerByReference model, Pointer context, byte[] path, Pointer options, RawError error);

        void gpuserve_model_close(PointerByReference model);

        long gpuserve_model_dim(Pointer model);

        int gpuserve_embed(Pointer model, Pointer texts, long nTexts, float[] vectors, long nFloats, Pointer options, RawError error);

        float gpuserve_dot(float[] a, float[] b, long n);

        String gpuserve_status_name(int status);
    }

    /** gpuserve_error */
    @Structure.FieldOrder({"struct_size", "status", "retry_after_ms", "reserved", "message", "hint"})
    public static class RawError extends Structure {
        public int struct_size;
        public int status;
        public int retry_after_ms;
        public int reserved;
        public byte[] message = new byte[512];
        public byte[] hint = new byte[512];

        RawError() {
            struct_size = size();
        }
    }

    static final Library LIBRARY = Native.load("gpuserve", Library.class);

    /** What a call of the library reports. */
    static class GpuserveException extends Exception {
        final int status;

        GpuserveException(int status, RawError raw) {
            super(LIBRARY.gpuserve_status_name(status) + ": " + Native.toString(raw.message, "UTF-8") + " (" + Native.toString(raw.hint, "UTF-8") + ")");
            this.status = status;
        }
    }

    static byte[] utf8(String text) {
        return (text + "\0").getBytes(StandardCharsets.UTF_8);
    }

    static void check(int status, RawError raw) throws GpuserveException {
        if (status != 0) {
            throw new GpuserveException(status, raw);
        }
    }

    /** Any number of threads may call embed(); close() after the last one. */
    static class Model implements AutoCloseable {
        private final PointerByReference handle = new PointerByReference();
        final int dim;

        Model(String path) throws GpuserveException {
            RawError raw = new RawError();
            check(LIBRARY.gpuserve_model_open(handle, null, utf8(path), null, raw), raw);
            dim = (int) LIBRARY.gpuserve_model_dim(handle.getValue());
        }

        float[][] embed(String... texts) throws GpuserveException {
            Memory[] copies = new Memory[texts.length];
            Memory pointers = new Memory(Math.max(1, texts.length) * (long) Native.POINTER_SIZE);
            for (int i = 0; i < texts.length; i++) {
                byte[] bytes = utf8(texts[i]);
                copies[i] = new Memory(bytes.length);
                copies[i].write(0, bytes, 0, bytes.length);
                pointers.setPointer(i * (long) Native.POINTER_SIZE, copies[i]);
            }
            RawError raw = new RawError();
            float[] all = new float[texts.length * dim];
            check(LIBRARY.gpuserve_embed(handle.getValue(), pointers, texts.length, all, all.length, null, raw), raw);
            java.lang.ref.Reference.reachabilityFence(copies);
            float[][] vectors = new float[texts.length][];
            for (int i = 0; i < texts.length; i++) {
                vectors[i] = Arrays.copyOfRange(all, i * dim, (i + 1) * dim);
            }
            return vectors;
        }

        @Override
        public void close() {
            LIBRARY.gpuserve_model_close(handle);
        }
    }

    static float dot(float[] a, float[] b) {
        return LIBRARY.gpuserve_dot(a, b, a.length);
    }

    public static void main(String[] arguments) throws Exception {
        final int nThreads = 4;
        final String[] texts = {"A man is eating food.", "A man is eating a piece of bread.", "A cheetah runs."};
        String path = arguments.length > 0 ? arguments[0] : "sentence-transformers/all-MiniLM-L6-v2";
        ExecutorService threads = Executors.newFixedThreadPool(nThreads);

        try (Model model = new Model(path)) {
            List<Future<float[][]>> batches = new ArrayList<>();
            for (int i = 0; i < nThreads; i++) {
                batches.add(threads.submit(() -> model.embed(texts)));
            }
            float first = dot(batches.get(0).get()[0], batches.get(1).get()[1]);
            float second = dot(batches.get(2).get()[0], batches.get(3).get()[2]);
            System.out.printf("%d threads, %d texts each, %d dimensions%n", nThreads, texts.length, model.dim);
            System.out.printf(Locale.ROOT, "similarity %.3f %.3f%n", first, second);
        } finally {
            threads.shutdown();
        }
        try (Model nowhere = new Model("/nowhere")) {
            throw new IllegalStateException("/nowhere is a model of " + nowhere.dim + " dimensions");
        } catch (GpuserveException error) {
            System.out.println("error " + error.getMessage());
        }
    }
}
