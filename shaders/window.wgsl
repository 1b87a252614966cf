// Where a tap of a kernel lies along one side of an image. Below zero it wraps around and is larger than any image.

fn under(application: u32, tap: u32, stride: u32, dilation: u32, before: u32) -> u32 {
    return application * stride + tap * dilation - before;
}

