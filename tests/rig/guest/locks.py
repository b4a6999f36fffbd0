# locks.py DIR ME OTHER - in one of two guests: contends for locks in DIR with the other. "alpha" leads.
import errno
import fcntl
import os
import sys
import time

directory, me, other = sys.argv[1:]
ROUNDS = 60


def path(name):
    return f"{directory}/{name}"


def tell(what):
    os.close(os.open(path(f"{me}-{what}"), os.O_WRONLY | os.O_CREAT))


def wait_for(what, limit=60):
    end = time.time() + limit
    while time.time() < end:
        # A listing is fetched anew once the directory has changed; a negative look-up may be cached.
        if f"{other}-{what}" in os.listdir(directory):
            return
        time.sleep(0.1)
    sys.exit(f"{other} did not come to {what}")


def meet(what):
    tell(what)
    wait_for(what)


def open_both(name):
    return os.open(path(name), os.O_RDWR | os.O_CREAT, 0o644)


def count(kind, lock, unlock):
    """Both add to one number under the lock; in the end nothing is lost."""
    file = open_both(f"counter-{kind}")
    meet(f"{kind}-ready")
    for _ in range(ROUNDS):
        lock(file)
        value = int(os.pread(file, 20, 0) or b"0")
        os.pwrite(file, b"%d" % (value + 1), 0)
        unlock(file)
    meet(f"{kind}-done")
    lock(file)
    value = int(os.pread(file, 20, 0))
    unlock(file)
    os.close(file)
    if value != 2 * ROUNDS:
        sys.exit(f"{kind}: {value} counted, not {2 * ROUNDS}")
    print(f"{kind}: {value} counted")


def hold_and_wait():
    """alpha holds; beta's try fails, beta's wait ends soon after alpha lets go."""
    file = open_both("held")
    if me == "alpha":
        fcntl.lockf(file, fcntl.LOCK_EX)
        tell("holds")
        wait_for("tried")
        time.sleep(3)
        released = time.time()
        fcntl.lockf(file, fcntl.LOCK_UN)
        tell("released")
        wait_for("got")
        # Includes beta's word reaching us.
        took = time.time() - released
        print(f"the waiter had the lock within {took:.1f} s")
        if took > 8:
            sys.exit("the waiter was not woken")
    else:
        wait_for("holds")
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            sys.exit("a try succeeds while the other holds")
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
        tell("tried")
        fcntl.lockf(file, fcntl.LOCK_EX)
        tell("got")
        fcntl.lockf(file, fcntl.LOCK_UN)
    os.close(file)
    meet("held-done")


def ranges():
    """Ranges that do not meet are held at once; shared locks too; a shared one keeps an exclusive one out."""
    file = open_both("ranges")
    start = 0 if me == "alpha" else 1000
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1000, start)
    fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, 1000, 5000)
    meet("ranges-held")
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1000, 5000)
        sys.exit("an exclusive lock over the other's shared one")
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
    meet("ranges-tried")
    os.close(file)
    meet("ranges-done")


count("flock", lambda file: fcntl.flock(file, fcntl.LOCK_EX), lambda file: fcntl.flock(file, fcntl.LOCK_UN))
count("fcntl", lambda file: fcntl.lockf(file, fcntl.LOCK_EX), lambda file: fcntl.lockf(file, fcntl.LOCK_UN))
hold_and_wait()
ranges()
print("ok")
