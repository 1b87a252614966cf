#!/bin/bash
# A Rust compiler for wasm32-wasip2 from Debian's packages, for machines where rustup cannot fetch the target.
# Usage: wasm-std.sh DIR. Needs no root, takes about a minute, leaves DIR/rustc.
#
# Debian has the compiler, the sources of its standard library and a C library, but no compiled standard library for
# this target: that is built here, once. The linker is the one of the user's own toolchain.
set -euo pipefail
target=wasm32-wasip2
dir=$(realpath -m "$1")
rm -rf "$dir"
mkdir -p "$dir/debs" "$dir/std/src"

# Fetch and unpack. Names with versions in them are read from what rustc-web depends on.
cd "$dir/debs"
[ -n "$(apt-cache madison rustc-web 2>/dev/null)" ] || apt-get update -qq
needs() { apt-cache depends "$1" | sed -n "s/^ *Depends: \($2\)$/\1/p" | head -n 1; }
std=$(needs libstd-rust-web-dev 'libstd-rust-web-[0-9.]*')
llvm=$(needs "$std" 'libllvm[0-9]*')
apt-get download -qq rustc-web libstd-rust-web-dev "$std" "$llvm" rust-web-src wasi-libc
for deb in *.deb; do dpkg -x "$deb" "$dir"; done
rm -r "$dir/debs"

# The compiler finds its libraries beside it, wherever DIR is.
libraries=$(echo "$dir"/usr/lib/*-linux-gnu)
cat > "$dir/rustc" <<END
#!/bin/sh
LD_LIBRARY_PATH=$libraries\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH} exec $dir/usr/bin/rustc "\$@"
END
chmod +x "$dir/rustc"

# The standard library, with bitcode so that guests can use link-time optimisation.
lib=$dir/usr/lib/rustlib/$target/lib
mkdir -p "$lib/self-contained"
cp "$dir"/usr/lib/wasm32-wasi/{crt1-command.o,crt1-reactor.o,libc.a} "$lib/self-contained/"
cd "$dir/std"
cat > Cargo.toml <<END
[package]
name = "std-for-guests"
version = "0.0.0"
edition = "2021"
[workspace]
[lib]
crate-type = ["rlib"]
[profile.release]
panic = "abort"
END
: > src/lib.rs
env -u RUSTFLAGS -u CARGO_ENCODED_RUSTFLAGS -u RUSTC_WRAPPER \
    RUSTC_BOOTSTRAP=1 RUSTC="$dir/rustc" CARGO_TARGET_DIR="$dir/std/target" \
    CARGO_TARGET_WASM32_WASIP2_RUSTFLAGS=-Cembed-bitcode=yes \
    cargo build --quiet --release -Z build-std=std,panic_abort,proc_macro --target "$target"
rm -f "target/$target/release/deps"/libstd_for_guests*
cp "target/$target/release/deps"/lib*.rlib "$lib/"
rm -r "$dir/std" "$dir/usr/src" "$dir/usr/share"
