//! embed.rs - vectors from several threads, in Rust without crates.
//!
//! The declarations below are all that this program needs of <gpuserve/gpuserve.h>. `Model` owns the handle; it
//! is Send and Sync because the library's models are thread-safe.
//!
//!     rustc -O examples/rust/embed.rs -L build/lib -l gpuserve
//!     ./embed sentence-transformers/all-MiniLM-L6-v2

use std::ffi::{CStr, CString};
use std::os::raw::{c_char, c_void}; // std::ffi has them since Rust 1.64
use std::{env, fmt, mem, process, ptr, sync::Arc, thread};

/// gpuserve_error
#[repr(C)]
struct RawError {
    struct_size: u32,
    status: i32,
    retry_after_ms: u32,
    reserved: u32,
    message: [c_char; 512],
    hint: [c_char; 512],
}

extern "C" {
    fn gpuserve_model_open(
        model: *mut *mut c_void,
        context: *mut c_void,
        path: *const c_char,
        options: *const c_void,
        error: *mut RawError,
    ) -> i32;
    fn gpuserve_model_close(model: *mut *mut c_void);
    fn gpuserve_model_dim(model: *const c_void) -> usize;
    fn gpuserve_embed(
        model: *mut c_void,
        texts: *const *const c_char,
        n_texts: usize,
        vectors: *mut f32,
        n_floats: usize,
        options: *const c_void,
        error: *mut RawError,
    ) -> i32;
    fn gpuserve_dot(a: *const f32, b: *const f32, n: usize) -> f32;
    fn gpuserve_status_name(status: i32) -> *const c_char;
}

impl RawError {
    fn new() -> Self {
        RawError { struct_size: mem::size_of::<RawError>() as u32, status: 0, retry_after_ms: 0, reserved: 0, message: [0; 512], hint: [0; 512] }
    }
}

fn text_of(text: *const c_char) -> String {
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[derive(Debug)]
struct Error {
    status: i32,
    message: String,
    hint: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: {} ({})", text_of(unsafe { gpuserve_status_name(self.status) }), self.message, self.hint)
    }
}

impl std::error::Error for Error {}

fn check(status: i32, raw: &RawError) -> Result<(), Error> {
    match status {
        0 => Ok(()),
        _ => Err(Error { status, message: text_of(raw.message.as_ptr()), hint: text_of(raw.hint.as_ptr()) }),
    }
}

struct Model(*mut c_void);
unsafe impl Send for Model {}
unsafe impl Sync for Model {}

impl Model {
    fn open(path: &str) -> Result<Model, Box<dyn std::error::Error>> {
        let path = CString::new(path)?;
        let mut raw = RawError::new();
        let mut handle = ptr::null_mut();
        check(unsafe { gpuserve_model_open(&mut handle, ptr::null_mut(), path.as_ptr(), ptr::null(), &mut raw) }, &raw)?;
        Ok(Model(handle))
    }

    fn dim(&self) -> usize {
        unsafe { gpuserve_model_dim(self.0) }
    }

    /// One vector for each text.
    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, Box<dyn std::error::Error>> {
        let texts = texts.iter().map(|&text| CString::new(text)).collect::<Result<Vec<_>, _>>()?;
        let pointers: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
        let mut raw = RawError::new();
        let mut all = vec![0f32; texts.len() * self.dim()];
        check(
            unsafe { gpuserve_embed(self.0, pointers.as_ptr(), pointers.len(), all.as_mut_ptr(), all.len(), ptr::null(), &mut raw) },
            &raw,
        )?;
        Ok(all.chunks(self.dim()).map(<[f32]>::to_vec).collect())
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        unsafe { gpuserve_model_close(&mut self.0) }
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    unsafe { gpuserve_dot(a.as_ptr(), b.as_ptr(), a.len()) }
}

const TEXTS: [&str; 3] = ["A man is eating food.", "A man is eating a piece of bread.", "A cheetah runs."];
const N_THREADS: usize = 4;

fn run(path: &str) -> Result<(), Box<dyn std::error::Error>> {
    let model = Arc::new(Model::open(path)?);
    let threads: Vec<_> = (0..N_THREADS)
        .map(|_| {
            let model = Arc::clone(&model);
            thread::spawn(move || model.embed(&TEXTS).map_err(|error| error.to_string()))
        })
        .collect();
    let mut batches = Vec::new();
    for thread in threads {
        batches.push(thread.join().expect("a thread panicked")?);
    }
    println!("{} threads, {} texts each, {} dimensions", batches.len(), TEXTS.len(), model.dim());
    println!("similarity {:.3} {:.3}", dot(&batches[0][0], &batches[1][1]), dot(&batches[2][0], &batches[3][2]));
    match Model::open("/nowhere") {
        Err(error) => println!("error {error}"),
        Ok(_) => return Err("/nowhere is a model".into()),
    }
    Ok(())
}

fn main() {
    let path = env::args().nth(1).unwrap_or_else(|| "sentence-transformers/all-MiniLM-L6-v2".into());
    if let Err(error) = run(&path) {
        eprintln!("{error}");
        process::exit(1);
    }
}
