"""Ordinary Python programs that do nothing wrong. Each asserts its own success: exit code 0 means that it worked."""

PROGRAMS = {
    "threads": (
        """
        import concurrent.futures, queue, threading
        lock, total = threading.Lock(), []
        def add(n):
            with lock: total.append(n)
        with concurrent.futures.ThreadPoolExecutor(16) as pool: list(pool.map(add, range(1000)))
        assert sum(total) == 499500
    """
    ),
    "200 threads": (
        """
        import threading
        barrier = threading.Barrier(201, timeout=30)
        threads = [threading.Thread(target=barrier.wait) for _ in range(200)]
        for thread in threads: thread.start()
        barrier.wait()
        for thread in threads: thread.join()
    """
    ),
    "restarted calls": (
        """
        import os, signal, time
        signals = []
        signal.signal(signal.SIGALRM, lambda *_: signals.append(1))
        signal.siginterrupt(signal.SIGALRM, False)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        while len(signals) < 200:
            os.mkdir("/tmp/one")
            os.rename("/tmp/one", "/tmp/two")
            os.rmdir("/tmp/two")
        signal.setitimer(signal.ITIMER_REAL, 0)
    """
    ),
    "subprocesses": (
        """
        import subprocess, sys
        assert subprocess.run(["/bin/echo", "hi"], capture_output=True, text=True).stdout == "hi\\n"
        assert subprocess.run("echo $((6 * 7)) | tr 4 5", shell=True, capture_output=True, text=True).stdout == "52\\n"
        assert subprocess.run([sys.executable, "-c", "raise SystemExit(7)"]).returncode == 7
        process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.communicate(b"x" * 300000)[0] == b"x" * 300000
        sleeper = subprocess.Popen(["sleep", "60"])
        sleeper.terminate()
        assert sleeper.wait() == -15
    """
    ),
    "multiprocessing": (
        """
        import multiprocessing as mp
        def square(n): return n * n
        def child(queue, value):
            with value.get_lock(): value.value += 5
            queue.put("from the child")
        if __name__ == "__main__":
            with mp.Pool(4) as pool: assert pool.map(square, range(10)) == [n * n for n in range(10)]
            queue, value = mp.Queue(), mp.Value("i", 1)
            process = mp.Process(target=child, args=(queue, value))
            process.start()
            assert queue.get(timeout=20) == "from the child"
            process.join()
            assert process.exitcode == 0 and value.value == 6
            with mp.Manager() as manager:
                shared = manager.dict(a=1)
                assert dict(shared) == {"a": 1}
            with mp.get_context("spawn").Pool(2) as pool: assert pool.map(abs, [-1, -2]) == [1, 2]
            with mp.get_context("forkserver").Pool(1) as pool: assert pool.map(abs, [-3]) == [3]
    """
    ),
    "asyncio": (
        """
        import asyncio
        async def serve(reader, writer):
            writer.write((await reader.readline()).upper())
            await writer.drain()
            writer.close()
        async def main():
            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            for host in ("127.0.0.1", "localhost"):
                reader, writer = await asyncio.open_connection(host, server.sockets[0].getsockname()[1])
                writer.write(b"hello\\n")
                assert await reader.readline() == b"HELLO\\n"
                writer.close()
            process = await asyncio.create_subprocess_exec("echo", "x", stdout=asyncio.subprocess.PIPE)
            assert (await process.communicate())[0] == b"x\\n"
            assert await asyncio.to_thread(sum, [1, 2]) == 3
            server.close()
        asyncio.run(main())
    """
    ),
    "http on loopback": (
        """
        import http.server, threading, urllib.request
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200); self.end_headers(); self.wfile.write(self.path.encode())
            def log_message(self, *_): pass
        for host in ("127.0.0.1", "localhost", ""):
            server = http.server.ThreadingHTTPServer((host, 0), Handler)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            address = f"http://{host or '0.0.0.0'}:{server.server_port}/path"
            assert urllib.request.urlopen(address, timeout=10).read() == b"/path"
            server.shutdown()
            server.server_close()
    """
    ),
    "loopback version 6": (
        """
        import socket
        server = socket.create_server(("::1", 0), family=socket.AF_INET6)
        client = socket.create_connection(server.getsockname()[:2], timeout=10)
        peer, _ = server.accept()
        client.sendall(b"x")
        assert peer.recv(1) == b"x"
    """
    ),
    "datagrams": (
        """
        import socket
        a, b = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        a.bind(("127.0.0.1", 0))
        b.sendto(b"one", a.getsockname())
        b.connect(a.getsockname())
        b.send(b"two")
        b.sendmsg([b"th", b"ree"])
        assert [a.recv(9) for _ in range(3)] == [b"one", b"two", b"three"]
    """
    ),
    "name of this host": (
        """
        import socket
        assert socket.gethostbyname("localhost") == "127.0.0.1"
        assert {i[4][0] for i in socket.getaddrinfo("localhost", 80)} <= {"127.0.0.1", "::1"}
        socket.getaddrinfo(socket.gethostname(), 80)
        socket.getaddrinfo("127.0.0.1", 80)
    """
    ),
    "unix sockets": (
        """
        import os, socket
        a, b = socket.socketpair()
        socket.send_fds(a, [b"fd"], [0])
        assert socket.recv_fds(b, 2, 1)[0] == b"fd"
        server = socket.socket(socket.AF_UNIX)
        server.bind("/scratch/socket"); server.listen()
        client = socket.socket(socket.AF_UNIX); client.connect("/scratch/socket"); client.sendall(b"x")
        assert server.accept()[0].recv(1) == b"x"
        hidden = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        hidden.bind("\\0abstract")
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", "\\0abstract")
        os.unlink("/scratch/socket")
    """
    ),
    "shared memory": (
        """
        import mmap
        from multiprocessing import shared_memory
        with open("/tmp/map", "w+b") as file:
            file.truncate(8192)
            view = mmap.mmap(file.fileno(), 8192)
            view[:3] = b"abc"; view.flush()
        assert open("/tmp/map", "rb").read(3) == b"abc"
        block = shared_memory.SharedMemory(create=True, size=4096)
        block.buf[0] = 7
        again = shared_memory.SharedMemory(block.name)
        assert again.buf[0] == 7
        again.close(); block.close()
        block.unlink()
        anonymous = mmap.mmap(-1, 1 << 20); anonymous[5] = 1
    """
    ),
    "sqlite": (
        """
        import sqlite3
        database = sqlite3.connect("/scratch/data.db")
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, s TEXT)")
        with database: database.executemany("INSERT INTO t (s) VALUES (?)", [(str(n),) for n in range(1000)])
        database.execute("VACUUM")
        assert sqlite3.connect("/scratch/data.db").execute("SELECT count(*) FROM t").fetchone() == (1000,)
    """
    ),
    "temporary files": (
        """
        import os, pathlib, shutil, tempfile
        with tempfile.TemporaryDirectory() as top:
            path = pathlib.Path(top, "a", "b"); path.mkdir(parents=True)
            (path / "f").write_text("x"); (path / "f").rename(path / "g")
            os.symlink("g", path / "l"); os.link(path / "g", path / "h")
            os.chmod(path / "g", 0o600); os.utime(path / "g"); os.truncate(path / "g", 0); os.mkfifo(path / "p")
            shutil.copytree(top, "/scratch/copy", ignore=lambda *_: ["p"], symlinks=True)
        with tempfile.NamedTemporaryFile() as file: file.write(b"x")
        with tempfile.TemporaryFile() as file: file.write(b"x")
        with tempfile.SpooledTemporaryFile(max_size=1) as file: file.write(b"xxx")
        pathlib.Path("/var/tmp/x").write_text("x"); pathlib.Path.home().joinpath("x").write_text("x")
    """
    ),
    "devices and descriptors": (
        """
        import os, sys
        open("/dev/null", "w").write("x"); open("/dev/null", "a").write("x"); open("/dev/zero", "r+b", 0).write(b"x")
        print("out", file=open("/dev/stdout", "w")); print("err", file=open("/dev/stderr", "w"))
        r, w = os.pipe()
        with open(f"/dev/fd/{w}", "w") as file: file.write("x")
        with open(f"/proc/self/fd/{w}", "w") as file: file.write("y")
        assert os.read(r, 9) == b"xy" and len(os.urandom(9)) == 9 and open("/dev/random", "rb").read(4)
        try: open("/dev/full", "w", 1).write("x\\n")
        except OSError as error: assert error.errno == 28
    """
    ),
    "signals": (
        """
        import os, signal, time
        seen = []
        signal.signal(signal.SIGUSR1, lambda *_: seen.append("usr1")); os.kill(os.getpid(), signal.SIGUSR1)
        signal.signal(signal.SIGALRM, lambda *_: seen.append("alarm"))
        signal.setitimer(signal.ITIMER_REAL, 0.05); signal.pause()
        signal.signal(signal.SIGCHLD, lambda *_: seen.append("child"))
        if os.fork() == 0: os._exit(3)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 3
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2]); os.kill(os.getpid(), signal.SIGUSR2)
        assert signal.sigwait([signal.SIGUSR2]) == signal.SIGUSR2 and seen == ["usr1", "alarm", "child"], seen
    """
    ),
    "text and locale": (
        """
        import datetime, locale, sys, time, zoneinfo
        locale.setlocale(locale.LC_ALL, "")
        assert sys.getfilesystemencoding() == "utf-8" and sys.stdout.encoding.lower() == "utf-8"
        open("/scratch/Grüße-日本", "w", encoding="utf-16").write("é日")
        assert open("/scratch/Grüße-日本", encoding="utf-16").read() == "é日"
        print("Grüße 日本 🙂"); time.tzset(); datetime.datetime.now().astimezone()
        zoneinfo.ZoneInfo("Europe/Berlin") if zoneinfo.available_timezones() else None
    """
    ),
    "runs itself": (
        """
        import os, sys
        if len(sys.argv) == 1: os.execv(sys.executable, [sys.executable, __file__, "again"])
        assert sys.argv[1] == "again"
        if os.fork() == 0:
            open("/scratch/script.sh", "w").write("#!/bin/sh\\nexit 0\\n"); os.chmod("/scratch/script.sh", 0o755)
            os.execv("/scratch/script.sh", ["script.sh"])
        assert os.wait()[1] == 0
    """
    ),
    "looks around": (
        """
        import getpass, grp, os, platform, pwd, resource, shutil
        assert getpass.getuser() == "user" and pwd.getpwuid(os.getuid()).pw_name == "user"
        assert grp.getgrgid(os.getgid()).gr_name == "user"
        platform.platform(); os.uname(); os.getloadavg(); os.times()
        resource.getrusage(resource.RUSAGE_SELF); shutil.disk_usage("/scratch")
        assert os.access("/workspace", os.R_OK) and not os.access("/workspace", os.W_OK)
        assert os.access("/scratch", os.W_OK)
        for top, _, names in os.walk("/proc/self"): list(names); break
        open("/proc/self/status").read(); open("/proc/meminfo").read()
        open("/proc/cpuinfo").read(); open("/etc/hosts").read()
        os.sched_getaffinity(0); os.nice(1); os.umask(0o77); os.getpriority(os.PRIO_PROCESS, 0)
    """
    ),
    "existing directories": (
        """
        import os, pathlib
        for place in ("/workspace", "/", "/usr", "/tmp"): os.makedirs(place, exist_ok=True)
        pathlib.Path("/workspace").mkdir(parents=True, exist_ok=True)
    """
    ),
    "byte code": (
        """
        import compileall, importlib, pathlib, py_compile, sys
        pathlib.Path("/scratch/mod.py").write_text("x = 1")
        py_compile.compile("/scratch/mod.py"); compileall.compile_dir("/scratch", quiet=2)
        sys.dont_write_bytecode = False
        sys.path.insert(0, "/workspace"); import helper
        assert helper.VALUE == 5
    """
    ),
}
