# busy.py DIR JOURNAL STOP - on a kernel client: several processes that never rest, over restarts of the server. Files and
# directories opened at the beginning stay open to the end; everything written is read back past the cache. Any error of any
# call ends it with 1, and its name. A line in JOURNAL for each round of each process.
import errno
import mmap
import os
import sys
import time
import traceback

directory, journal, stop = sys.argv[1:]
WORKERS = 4


def mounts():
    # The number of a mount is never another mount's as long as the first one is there.
    with open("/proc/self/mountinfo") as lines:
        return [line.split()[0] for line in lines if line.split()[4] == "/mnt"]


def block(worker, number, size=8192):
    return (f"{worker}:{number:012} ".encode() * (size // 8))[:size]


def read_past_cache(path):
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        buffer = mmap.mmap(-1, 1 << 16)
        size = os.preadv(file, [buffer], 0)
        return buffer[:size]
    finally:
        os.close(file)


def work(worker, report):
    home = f"{directory}/worker{worker}"
    os.mkdir(home)
    held = os.open(f"{home}/held", os.O_RDWR | os.O_CREAT, 0o644)
    folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    # Removed while open: the client keeps it under another name.
    gone = os.open(f"{home}/gone", os.O_RDWR | os.O_CREAT, 0o644)
    os.write(gone, block(worker, 0))
    os.unlink(f"{home}/gone")
    log = os.open(f"{home}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    number = 0
    while not os.path.exists(stop):
        number += 1
        data = block(worker, number)
        os.pwrite(held, data, 0)
        os.fsync(held)
        assert read_past_cache(f"{home}/held") == data, "the held file has other bytes"
        os.write(log, f"{number:08}\n".encode())
        os.fsync(log)
        assert os.fstat(log).st_size == 9 * number, f"the log has {os.fstat(log).st_size} bytes after {number} lines"
        name = f"file{number}"
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=folder)
        os.write(file, data)
        os.close(file)
        os.rename(name, f"{name}.new", src_dir_fd=folder, dst_dir_fd=folder)
        os.link(f"{home}/{name}.new", f"{home}/{name}.link")
        os.symlink(name, f"{home}/{name}.symlink")
        os.mkdir(f"{home}/{name}.d")
        os.truncate(f"{home}/{name}.link", 100)
        os.utime(f"{home}/{name}.link", (number, number))
        status = os.stat(f"{home}/{name}.new")
        assert (status.st_size, status.st_nlink, status.st_mtime) == (100, 2, number), str(status)
        assert f"{name}.d" in os.listdir(folder), "a new directory is not listed"
        os.pwrite(gone, data, 0)
        os.fsync(gone)
        assert os.pread(gone, len(data), 0) == data, "the removed file has other bytes"
        if number > 5:
            old = f"{home}/file{number - 5}"
            for path in (f"{old}.new", f"{old}.link", f"{old}.symlink"):
                os.unlink(path)
            os.rmdir(f"{old}.d")
        os.write(report, b"%d %d\n" % (worker, number))


before = mounts()
assert len(before) == 1, f"mounts: {before}"
report = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
children = []
for worker in range(WORKERS):
    child = os.fork()
    if child == 0:
        try:
            work(worker, report)
            os._exit(0)
        except OSError as error:
            print(f"worker {worker}: {errno.errorcode.get(error.errno, error.errno)} {error}", flush=True)
        except BaseException as error:
            print(f"worker {worker}: {error}", flush=True)
        traceback.print_exc()
        os._exit(1)
    children.append(child)
failed = False
while children:
    child, status = os.wait()
    children.remove(child)
    if status != 0:
        failed = True
        break
if failed:
    sys.exit(1)
assert mounts() == before, f"it was mounted again: {before}, {mounts()}"
with open(journal) as lines:
    rounds = len(lines.readlines())
print(f"{rounds} rounds of {WORKERS} processes on one mount, no error")
