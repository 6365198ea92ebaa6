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
    # The rest of the standard library, a little of each: the system calls of ordinary libraries.
    "terminals of its own": """
        import os, pty, termios, tty
        master, slave = pty.openpty()
        assert os.isatty(slave) and os.ttyname(slave).startswith("/dev/pts/")
        tty.setraw(slave)
        os.write(master, b"hello\\n")
        assert os.read(slave, 100) == b"hello\\n" and termios.tcgetwinsize(slave) == (0, 0)
        pid, fd = pty.fork()
        if pid == 0:
            os.write(os.open("/dev/tty", os.O_RDWR), b"from the child")
            os._exit(0 if os.isatty(0) else 1)
        text = b""
        try:
            while chunk := os.read(fd, 100): text += chunk
        except OSError: pass
        assert os.waitpid(pid, 0)[1] == 0 and text == b"from the child", text
    """,
    "more terminals than there are": """
        import pty
        kept = []
        try:
            while len(kept) < 400: kept.append(pty.openpty())
        except OSError: pass
        assert 16 <= len(kept) < 400, len(kept)
    """,
    "script": """
        import os, subprocess
        if os.path.exists("/usr/bin/script"):
            done = subprocess.run(["script", "-qec", "tty; echo hi", "/tmp/typescript"], capture_output=True, stdin=subprocess.DEVNULL)
            assert b"/dev/pts/" in done.stdout and b"hi" in done.stdout, done
    """,
    "no controlling terminal": """
        import getpass, io, os, sys, warnings
        try: os.open("/dev/tty", os.O_RDWR)
        except OSError: pass
        else: raise AssertionError("there is one")
        warnings.simplefilter("ignore")
        sys.stdin = io.StringIO("secret\\n")
        assert getpass.getpass("") == "secret" and getpass.getuser() == "user"
    """,
    "identifiers": """
        import uuid
        assert len({uuid.uuid1() for _ in range(50)}) == 50 and uuid.uuid4().version == 4
        assert uuid.getnode() and uuid.uuid5(uuid.NAMESPACE_DNS, "a").version == 5
    """,
    "names of this host": """
        import socket
        host = socket.gethostname()
        for name in (host, "localhost", "www.localhost", "a.b.localhost", "ip6-localhost", "ip6-loopback"):
            for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNSPEC):
                found = socket.getaddrinfo(name, 80, family, socket.SOCK_STREAM)
                assert found and {entry[4][0] for entry in found} <= {"127.0.0.1", "127.0.1.1", "::1"}, (name, found)
        for address in ("127.0.0.1", "127.0.1.1", "127.0.0.53", "127.9.8.7", "::1"):
            name = socket.gethostbyaddr(address)[0]
            assert name in ("localhost", host), (address, name)
        assert socket.getfqdn() == host and socket.getfqdn("127.3.2.1") == "localhost" and socket.getfqdn("0.0.0.0")
        assert socket.getnameinfo(("127.0.0.2", 80), socket.NI_NUMERICSERV) == ("localhost", "80")
    """,
    "mail to nobody": """
        import smtplib
        try: smtplib.SMTP("localhost", 25, timeout=5)
        except ConnectionRefusedError: pass
        else: raise AssertionError("something answered")
    """,
    "remote calls": """
        import threading, xmlrpc.client, xmlrpc.server
        server = xmlrpc.server.SimpleXMLRPCServer(("localhost", 0), logRequests=False)
        server.register_function(pow)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert xmlrpc.client.ServerProxy(f"http://localhost:{server.server_address[1]}").pow(2, 10) == 1024
    """,
    "web server": """
        import functools, http.server, threading, urllib.error, urllib.request
        handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory="/workspace")
        handler.func.log_message = lambda *_: None
        server = http.server.ThreadingHTTPServer(("0.0.0.0", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_port}"
        assert b"VALUE" in urllib.request.urlopen(base + "/helper.py").read()
        try: urllib.request.urlopen(base + "/absent")
        except urllib.error.HTTPError as error: assert error.code == 404
    """,
    "line editing": """
        import code, readline, rlcompleter
        readline.parse_and_bind("tab: complete")
        readline.add_history("x")
        readline.write_history_file("/tmp/history")
        assert rlcompleter.Completer().complete("prin", 0).startswith("print")
        code.InteractiveInterpreter().runsource("y = 1")
    """,
    "screen": """
        import curses, os, pty
        pid, fd = pty.fork()
        if pid == 0:
            os.environ["TERM"] = "xterm"
            def main(screen):
                screen.addstr(0, 0, "hello")
                screen.refresh()
            curses.wrapper(main)
            os._exit(0)
        text = b""
        try:
            while chunk := os.read(fd, 1000): text += chunk
        except OSError: pass
        assert os.waitpid(pid, 0)[1] == 0 and b"hello" in text, text
    """,
    "browser": """
        import webbrowser
        try: webbrowser.get()
        except webbrowser.Error: pass
    """,
    "C library": """
        import ctypes, ctypes.util, os
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.abs(-3) == 3 and libc.getpid() == os.getpid()
        ctypes.util.find_library("c")
        compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
        numbers = (ctypes.c_int * 3)(3, 1, 2)
        libc.qsort(numbers, 3, ctypes.sizeof(ctypes.c_int), compare(lambda a, b: a[0] - b[0]))
        assert list(numbers) == [1, 2, 3]
    """,
    "mapped files": """
        import mmap
        with open("/tmp/map", "w+b") as file:
            file.truncate(8192)
            with mmap.mmap(file.fileno(), 0) as view:
                view[:5] = b"hello"
                view.flush()
            file.seek(0)
            assert file.read(5) == b"hello"
        with open("/workspace/helper.py", "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            assert view.find(b"VALUE") == 0
        with mmap.mmap(-1, 1 << 20) as view: view.madvise(mmap.MADV_DONTNEED)
    """,
    "small databases": """
        import dbm.dumb, shelve
        with shelve.open("/tmp/shelf") as shelf: shelf["a"] = [1, {"b": 2}]
        with shelve.open("/tmp/shelf") as shelf: assert shelf["a"][1]["b"] == 2
        with dbm.dumb.open("/tmp/dumb", "c") as db: db["k"] = "v"
    """,
    "logs": """
        import logging, logging.handlers, syslog
        log = logging.getLogger("x")
        log.propagate = logging.raiseExceptions = False
        log.addHandler(logging.handlers.RotatingFileHandler("/tmp/log", maxBytes=200, backupCount=2))
        for n in range(50): log.warning("line %d", n)
        record = logging.LogRecord("x", 30, "", 0, "m", (), None)
        logging.handlers.WatchedFileHandler("/tmp/watched.log").emit(record)
        logging.handlers.SysLogHandler(("localhost", 514)).emit(record)
        logging.handlers.SysLogHandler("/dev/log").emit(record)
        syslog.syslog("nobody listens")
    """,
    "time zones": """
        import datetime, time, zoneinfo
        noon = datetime.datetime(2024, 7, 1, 12, tzinfo=datetime.timezone.utc)
        try: assert noon.astimezone(zoneinfo.ZoneInfo("Europe/Berlin")).hour == 14
        except zoneinfo.ZoneInfoNotFoundError: pass
        time.tzset(); time.localtime(); datetime.datetime.now().astimezone()
    """,
    "tls": """
        import socket, ssl
        context = ssl.create_default_context()
        assert context.verify_mode == ssl.CERT_REQUIRED and context.get_ciphers() and ssl.RAND_bytes(8)
        ssl.get_default_verify_paths()
        here, there = socket.socketpair()
        there.close()
        try: context.wrap_socket(here, server_hostname="localhost")
        except OSError: pass
    """,
    "archives": """
        import bz2, gzip, lzma, shutil, tarfile, zipfile, zlib
        for module in (bz2, gzip, lzma, zlib): assert module.decompress(module.compress(b"x" * 999)) == b"x" * 999
        shutil.copytree("/workspace", "/tmp/copy", ignore=shutil.ignore_patterns("__pycache__"))
        for form in ("zip", "gztar", "xztar"): shutil.unpack_archive(shutil.make_archive("/tmp/a", form, "/tmp/copy"), "/tmp/" + form)
        assert open("/tmp/gztar/helper.py").read() == "VALUE = 5\\n" and zipfile.ZipFile("/tmp/a.zip").testzip() is None
        shutil.rmtree("/tmp/copy")
    """,
    "files and trees": """
        import filecmp, glob, os, pathlib, stat, tempfile
        top = pathlib.Path(tempfile.mkdtemp())
        for name in ("a/b/c.txt", "a/d.py"): (top / name).parent.mkdir(parents=True, exist_ok=True); (top / name).write_text(name)
        os.symlink(top / "a/d.py", top / "link"); os.link(top / "a/d.py", top / "hard")
        (top / "hard").chmod(0o600); os.utime(top / "hard", (1, 2)); os.rename(top / "link", top / "renamed")
        assert sorted(p.name for p in top.rglob("*.py")) == ["d.py"] and glob.glob(f"{top}/**/c.txt", recursive=True)
        assert filecmp.cmp(top / "hard", top / "a/d.py") and stat.S_ISLNK((top / "renamed").lstat().st_mode)
        os.truncate(top / "hard", 2); os.statvfs("/"); os.access("/usr", os.W_OK); list(os.scandir("/"))
    """,
    "opening what is not there": """
        import os
        for path in ("/usr/absent/file", "/dev/absent", "/etc/absent.conf", "/workspace/absent", "/usr/bin/../absent"):
            for flags in (os.O_RDWR, os.O_WRONLY, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_TRUNC):
                try: os.open(path, flags)
                except FileNotFoundError: pass
                else: raise AssertionError(path)
    """,
    "accounts": """
        import grp, os, pathlib, pwd
        assert pwd.getpwuid(os.getuid()).pw_name == "user" and grp.getgrgid(os.getgid()).gr_name == "user" and pathlib.Path.home().is_dir()
        os.getgroups(); os.getpriority(os.PRIO_PROCESS, 0); os.nice(0); os.getloadavg(); os.sched_getaffinity(0); os.sched_yield()
        os.cpu_count(); os.uname(); os.times(); os.sysconf("SC_NPROCESSORS_ONLN")
        try: pwd.getpwnam("somebody-else")
        except KeyError: pass
        try: os.getlogin()
        except OSError: pass
    """,
    "limits of its own": """
        import faulthandler, gc, resource, sys, tracemalloc
        for name in ("AS", "STACK", "NOFILE", "CORE", "CPU"): resource.getrlimit(getattr(resource, "RLIMIT_" + name))
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard)); resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        faulthandler.enable(); faulthandler.dump_traceback_later(30); faulthandler.cancel_dump_traceback_later()
        tracemalloc.start(); gc.collect(); sys.setrecursionlimit(5000); resource.getrusage(resource.RUSAGE_CHILDREN)
    """,
    "servers of every kind": """
        import asyncio, socketserver, threading
        class Echo(socketserver.StreamRequestHandler):
            def handle(self): self.wfile.write(self.rfile.readline())
        server = socketserver.ForkingTCPServer(("127.0.0.1", 0), Echo)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        async def main():
            reader, writer = await asyncio.open_connection(*server.server_address)
            writer.write(b"hi\\n")
            assert await reader.readline() == b"hi\\n"
            writer.close()
            unix = await asyncio.start_unix_server(lambda r, w: w.close(), "/tmp/unix.sock")
            reader, writer = await asyncio.open_unix_connection("/tmp/unix.sock")
            assert await reader.read() == b""
            unix.close()
            process = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
            assert (await process.communicate(b"x"))[0] == b"x"
        asyncio.run(main())
        server.shutdown()
    """,
    "processes by spawn and forkserver": """
        import multiprocessing as mp, multiprocessing.shared_memory, os
        def work(n, queue): queue.put((n, os.getpid()))
        if __name__ == "__main__":
            for method in ("spawn", "forkserver", "fork"):
                context = mp.get_context(method)
                queue = context.Queue()
                processes = [context.Process(target=work, args=(n, queue)) for n in range(3)]
                for process in processes: process.start()
                assert sorted(queue.get(timeout=30)[0] for _ in processes) == [0, 1, 2]
                for process in processes: process.join()
            with mp.Manager() as manager: assert manager.list([1, 2])[1] == 2
            memory = mp.shared_memory.SharedMemory(create=True, size=100); memory.close(); memory.unlink()
    """,
    "profilers and tracers": """
        import cProfile, inspect, io, pdb, pstats, textwrap, timeit, trace
        profile = cProfile.Profile(); profile.runcall(sorted, range(1000))
        pstats.Stats(profile, stream=io.StringIO()).print_stats()
        timeit.timeit("1 + 1", number=1000); trace.Trace(count=1, trace=0).runfunc(len, "abc"); inspect.getsource(textwrap.dedent)
        pdb.Pdb(stdin=io.StringIO("c\\n"), stdout=io.StringIO()).runcall(lambda: 1)
    """,
    "formats": """
        import configparser, csv, email.message, io, pickle, plistlib, tomllib, xml.dom.minidom, xml.etree.ElementTree, xml.sax
        assert tomllib.loads("a = 1") == {"a": 1} and pickle.loads(pickle.dumps({1: [2]}, 5)) == {1: [2]}
        assert xml.etree.ElementTree.fromstring("<a><b/></a>")[0].tag == "b" and plistlib.loads(plistlib.dumps({"x": 1})) == {"x": 1}
        xml.dom.minidom.parseString("<a/>"); xml.sax.parseString(b"<a/>", xml.sax.ContentHandler())
        csv.writer(io.StringIO()).writerow([1, "a"]); configparser.ConfigParser().read(["/etc/absent.cfg", "/tmp/absent.cfg"])
        message = email.message.EmailMessage(); message["To"] = "a@b"; message.set_content("x"); message.as_bytes()
    """,
    "hashes and randomness": """
        import hashlib, hmac, os, random, secrets
        assert hashlib.sha256(b"").hexdigest()[:8] == "e3b0c442" and hmac.new(b"k", b"m", "sha512").digest()
        hashlib.scrypt(b"p", salt=b"s", n=16, r=1, p=1); hashlib.pbkdf2_hmac("sha1", b"p", b"s", 10)
        with open("/workspace/helper.py", "rb") as file: hashlib.file_digest(file, "blake2b")
        random.SystemRandom().random(); secrets.token_hex(); os.getrandom(8); os.urandom(8)
    """,
    "ways to wait": """
        import os, selectors, signal, socket, threading, time
        here, there = socket.socketpair()
        there.send(b"x")
        for make in (selectors.SelectSelector, selectors.PollSelector, selectors.EpollSelector):
            with make() as selector:
                selector.register(here, selectors.EVENT_READ)
                assert selector.select(1)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]); os.kill(os.getpid(), signal.SIGUSR1)
        assert signal.sigtimedwait([signal.SIGUSR1], 1).si_signo == signal.SIGUSR1
        os.close(os.pidfd_open(os.getpid())); fd = os.eventfd(0); os.eventfd_write(fd, 3); assert os.eventfd_read(fd) == 3
        timer = threading.Timer(0.01, there.close); timer.start(); timer.join(); time.clock_gettime(time.CLOCK_BOOTTIME)
    """,
    "modules that look for a screen": """
        import importlib
        for name in ("tkinter", "turtle", "idlelib.run", "lib2to3.pgen2.driver", "ensurepip", "venv", "distutils.sysconfig"):
            try: importlib.import_module(name)
            except ImportError: pass
        try:
            import tkinter
            tkinter.Tk()
        except Exception: pass
    """,
    "tests of its own": """
        import doctest, io, logging, types, unittest, unittest.mock
        module = types.ModuleType("module", ">>> 1 + 1\\n2\\n")
        assert doctest.testmod(module) == (0, 1)
        class T(unittest.TestCase):
            def test(self):
                with unittest.mock.patch("os.getpid", return_value=1), self.assertLogs(): logging.warning("x")
        assert unittest.TextTestRunner(io.StringIO()).run(unittest.defaultTestLoader.loadTestsFromTestCase(T)).wasSuccessful()
    """,
    "loading code": """
        import ast, compileall, importlib.metadata, importlib.util, pkgutil, py_compile, runpy, site, sysconfig
        assert runpy.run_path("/workspace/helper.py")["VALUE"] == 5 and ast.unparse(ast.parse("x=1")) == "x = 1"
        compileall.compile_dir("/workspace", quiet=2); py_compile.compile("/workspace/helper.py", cfile="/tmp/h.pyc")
        list(pkgutil.iter_modules()); list(importlib.metadata.distributions()); sysconfig.get_paths(); site.getusersitepackages()
        spec = importlib.util.spec_from_file_location("h", "/workspace/helper.py"); spec.loader.exec_module(importlib.util.module_from_spec(spec))
    """,
    "fonts": """
        import shutil, subprocess
        if shutil.which("fc-list"): assert subprocess.run(["fc-list"], capture_output=True).returncode == 0
        if shutil.which("fc-cache"): subprocess.run(["fc-cache"], capture_output=True)
    """,
    "tools": """
        import shutil, subprocess
        for command in ("ls -l /", "ps aux", "df", "free", "id", "whoami", "hostname", "uname -a", "date", "env", "ip addr", "lsblk",
                        "mount", "tty", "stty -a", "nproc", "uptime", "who", "locale", "getconf -a", "find /etc", "which sh",
                        "file /bin/sh", "man -w ls", "git --version", "perl -e 1", "tput cols", "getent hosts localhost",
                        "getent ahosts localhost", "ldd /bin/sh", "tar cf /tmp/x.tar /etc/passwd", "lscpu", "vmstat", "top -bn1",
                        "awk 1 /etc/passwd", "dd if=/dev/zero of=/tmp/z count=1", "truncate -s 10 /tmp/t", "mktemp",
                        "md5sum /etc/passwd", "openssl rand -hex 4", "make --version", "less -V"):
            if shutil.which(command.split()[0]): subprocess.run(command.split(), capture_output=True, stdin=subprocess.DEVNULL, timeout=60)
    """,
}
