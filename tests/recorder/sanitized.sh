#!/bin/sh
# sanitized.sh SANITIZER PYTHON COUNT: builds the native kernels with `address` or `thread`, and runs
# native_stress.py on them. Only the kernels are instrumented, so leaks and torch's own are left out.
set -e
sanitizer=$1 python=$(realpath -s "$2") count=$3
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME="$work/cache" FRTOP_DIR="$work/rings" FRTOP_NATIVE=1 FRTOP_AGENT=0 RANK=0
export OMP_NUM_THREADS=1
mkdir -m 700 "$FRTOP_DIR"
"$python" - "$sanitizer" <<'END'
import sys, torch
from frtop_probe.recorder.native import build
build.build(torch, (f"-fsanitize={sys.argv[1]}", "-fno-omit-frame-pointer", "-g", "-O1"))
END
library=asan forks=--no-forks  # a child may inherit a lock of asan's allocator, and wait for good
[ "$sanitizer" = address ] || library=tsan forks=
for more in "" --switch; do
  LD_PRELOAD="$(gcc -print-file-name=lib$library.so) $(gcc -print-file-name=libstdc++.so)" \
  ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0 \
  TSAN_OPTIONS=ignore_noninstrumented_modules=1:history_size=4:exitcode=66 \
  PYTHONPATH="$here/../../probe/frtop_probe/recorder/zero:$here/../../probe" \
    "$python" -W ignore "$here/native_stress.py" "$count" $more $forks
done
for ring in "$FRTOP_DIR"/*.ring; do
  grep -aq '"frtop kernels","native"' "$ring" || { echo "not on the native kernels" >&2; exit 1; }
done
echo "$sanitizer: nothing found in 2 x $count ops"
