"""Popular packages of PyPI and a little use of each: one line for the package, then the program that uses it.

A program prints what does not depend on where it runs, so that its output inside can be compared with that outside. The
packages of SHORT are tried in every run of the suite, the others with CAISSON_ALL_WHEELS=1.
"""

SHORT = """
numpy scipy pandas scikit-learn matplotlib
requests flask pillow sqlalchemy cryptography lxml sympy pydantic pexpect psutil pytest gevent pyarrow hypothesis
""".split()

# Installed with the others: what a program below needs besides its own package.
ALSO = ["pyopenssl", "service-identity"]

# Not among them: torch. Its wheel brings 3 GB of libraries for graphics cards; CAISSON_TORCH=1 takes it along. Debian's
# python3-torch does without them.
TORCH = """
import torch
x = torch.arange(6, dtype=torch.float32).reshape(2, 3).requires_grad_()
(x @ x.T).sum().backward()
print(x.grad.tolist(), torch.linalg.det(torch.eye(3)).item())
"""

_PROGRAMS = r"""
== numpy
import numpy as np
a = np.arange(12.0).reshape(3, 4)
print((a @ a.T).sum(), np.linalg.solve(np.eye(3) * 2, np.ones(3)), np.fft.fft([1, 0, 0, 0]).real, np.random.default_rng(1).integers(9, size=3))
b = np.random.default_rng(1).random((400, 400)); print((b @ b).shape, np.linalg.svd(b)[1].shape)

== scipy
import numpy as np
from scipy import integrate, optimize, sparse, stats, signal
print(round(integrate.quad(np.sin, 0, np.pi)[0], 6), round(optimize.brentq(lambda x: x * x - 2, 0, 2), 6))
print(sparse.eye(4).sum(), round(stats.norm.cdf(1.96), 4), signal.convolve([1, 2], [3, 4]))

== pandas
import io, pandas as pd
frame = pd.read_csv(io.StringIO('k,v\na,1\nb,2\na,3\n'))
print(frame.groupby('k').v.sum().to_dict(), frame.describe().loc['mean', 'v'])
frame.to_pickle('/tmp/frame.pkl'); print(pd.read_pickle('/tmp/frame.pkl').equals(frame))

== scikit-learn
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score
x, y = load_iris(return_X_y=True)
print(cross_val_score(RandomForestClassifier(20, random_state=0, n_jobs=2), x, y).mean() > 0.9)

== matplotlib
import matplotlib
matplotlib.use('Agg')
import matplotlib.pyplot as plt
from matplotlib import font_manager
print(len(font_manager.findSystemFonts()) >= 0, bool(font_manager.findfont('DejaVu Sans')))
plt.plot([1, 4, 9]); plt.title('t'); plt.savefig('/tmp/plot.png')
print(open('/tmp/plot.png', 'rb').read(4))

== statsmodels
import numpy as np, statsmodels.api as sm
x = sm.add_constant(np.arange(10.0))
print(sm.OLS(2 * np.arange(10.0) + 1, x).fit().params.round(6).tolist())

== xgboost
import numpy as np, xgboost as xgb
x = np.arange(40.0).reshape(20, 2); y = (x[:, 0] > 20).astype(int)
print(xgb.XGBClassifier(n_estimators=3, max_depth=2, n_jobs=1).fit(x, y).predict(x).sum())

== lightgbm
import numpy as np, lightgbm as lgb
x = np.arange(200.0).reshape(100, 2); y = (x[:, 0] > 100).astype(int)
print(lgb.LGBMClassifier(n_estimators=3, verbose=-1, n_jobs=1).fit(x, y).predict(x).shape)

== seaborn
import matplotlib; matplotlib.use('Agg')
import seaborn as sns
sns.set_theme(); ax = sns.histplot([1, 2, 2, 3]); ax.figure.savefig('/tmp/s.png'); print('saved')

== pillow
import io
from PIL import Image, ImageDraw, ImageFilter
image = Image.new('RGB', (32, 32), 'red'); ImageDraw.Draw(image).line((0, 0, 31, 31), 'blue')
data = io.BytesIO(); image.filter(ImageFilter.BLUR).save(data, 'PNG'); data.seek(0); print(Image.open(data).size)

== requests
import http.server, threading, requests
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self): self.send_response(200); self.end_headers(); self.wfile.write(b'{"a": 1}')
    def log_message(self, *_): pass
server = http.server.HTTPServer(('127.0.0.1', 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(requests.get(f'http://localhost:{server.server_port}/').json())

== urllib3
import urllib3
print(urllib3.util.parse_url('https://a.b:8/c?d').port)
try: urllib3.PoolManager(retries=False).request('GET', 'http://127.0.0.1:9/')
except urllib3.exceptions.HTTPError as error: print(type(error).__name__)

== certifi
import certifi, ssl
print(len(ssl.create_default_context(cafile=certifi.where()).get_ca_certs()) > 50)

== idna
import idna; print(idna.encode('bücher.example'))

== charset-normalizer
from charset_normalizer import from_bytes; print(str(from_bytes('héllo wörld, ça va très bien aujourd’hui'.encode()).best()))

== httpx
import asyncio, httpx
async def app(scope, receive, send):
    await send({'type': 'http.response.start', 'status': 200, 'headers': []}); await send({'type': 'http.response.body', 'body': b'ok'})
async def main():
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url='http://test') as client: print((await client.get('/')).text)
asyncio.run(main())

== aiohttp
import asyncio
from aiohttp import web, ClientSession
async def main():
    app = web.Application(); app.router.add_get('/', lambda request: asyncio.sleep(0, web.Response(text='hi')))
    runner = web.AppRunner(app); await runner.setup(); site = web.TCPSite(runner, 'localhost', 0); await site.start()
    port = runner.addresses[0][1]
    async with ClientSession() as session, session.get(f'http://localhost:{port}/') as answer: print(await answer.text())
    await runner.cleanup()
asyncio.run(main())

== flask
from flask import Flask, jsonify
app = Flask('x')
@app.route('/<name>')
def hello(name): return jsonify(name=name)
print(app.test_client().get('/bob').json)

== django
import django
from django.conf import settings
settings.configure(DATABASES={'default': {'ENGINE': 'django.db.backends.sqlite3', 'NAME': '/tmp/d.sqlite'}}, USE_TZ=True,
                   INSTALLED_APPS=['django.contrib.contenttypes', 'django.contrib.auth'])
django.setup()
from django.core.management import call_command
call_command('migrate', verbosity=0)
from django.contrib.auth.models import User
User.objects.create_user('a'); print(User.objects.count())

== fastapi
from fastapi import FastAPI
from fastapi.testclient import TestClient
app = FastAPI()
@app.get('/{n}')
def double(n: int): return {'n': 2 * n}
print(TestClient(app).get('/4').json(), TestClient(app).get('/x').status_code)

== uvicorn
import asyncio, socket, threading, time, urllib.request, uvicorn
async def app(scope, receive, send):
    if scope['type'] != 'http': return
    await send({'type': 'http.response.start', 'status': 200, 'headers': []}); await send({'type': 'http.response.body', 'body': b'up'})
listener = socket.socket(); listener.bind(('127.0.0.1', 0)); port = listener.getsockname()[1]
server = uvicorn.Server(uvicorn.Config(app, log_level='error', lifespan='off'))
thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener]))); thread.start()
while not server.started: time.sleep(0.01)
print(urllib.request.urlopen(f'http://127.0.0.1:{port}/').read()); server.should_exit = True; thread.join()

== starlette
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient
print(TestClient(Starlette(routes=[Route('/', lambda request: PlainTextResponse('s'))])).get('/').text)

== jinja2
import jinja2; print(jinja2.Environment(bytecode_cache=jinja2.FileSystemBytecodeCache()).from_string('{% for i in x %}{{ i }};{% endfor %}').render(x=[1, 2]))

== markupsafe
from markupsafe import escape; print(escape('<a & b>'))

== werkzeug
from werkzeug.security import check_password_hash, generate_password_hash
print(check_password_hash(generate_password_hash('x', 'pbkdf2:sha256:1000'), 'x'))

== click
import click
from click.testing import CliRunner
@click.command()
@click.option('--n', default=1)
def hello(n): click.echo('x' * n)
print(CliRunner().invoke(hello, ['--n', '3']).output)

== typer
import typer
from typer.testing import CliRunner
app = typer.Typer()
@app.command()
def main(name: str): print(f'hello {name}')
print(CliRunner().invoke(app, ['bob']).output)

== rich
from rich.console import Console
from rich.table import Table
table = Table('a', 'b'); table.add_row('1', '2'); Console(width=40).print(table)

== tqdm
from tqdm import tqdm; print(sum(tqdm(range(100), disable=None)))

== colorama
import colorama; colorama.init(); print(colorama.Fore.RED + 'x' + colorama.Style.RESET_ALL)

== pyyaml
import yaml; print(yaml.safe_load('a: [1, {b: c}]'), yaml.dump({'x': 1}))

== tomli
import tomli; print(tomli.loads('a = 1\n[b]\nc = "d"'))

== toml
import toml; print(toml.dumps({'a': {'b': 1}}))

== python-dateutil
from dateutil import parser, rrule, tz
print(parser.parse('2024-02-29 12:00'), len(list(rrule.rrule(rrule.DAILY, count=3))), tz.gettz('Europe/Berlin') is not None, tz.tzlocal() is not None)

== pytz
import datetime, pytz; print(pytz.timezone('Asia/Tokyo').localize(datetime.datetime(2024, 1, 1)))

== tzdata
import importlib.resources; print(importlib.resources.files('tzdata').joinpath('zones').read_text().count('\n') > 300)

== arrow
import arrow; print(arrow.get('2024-01-31').shift(months=1).format('YYYY-MM-DD'))

== pendulum
import pendulum; print(pendulum.datetime(2024, 1, 31, tz='Europe/Paris').add(months=1).to_iso8601_string())

== attrs
import attr
@attr.s(auto_attribs=True)
class Point: x: int = 0; y: int = 0
print(Point(1), attr.evolve(Point(1), y=2))

== pydantic
import pydantic
class Model(pydantic.BaseModel): n: int; tags: list[str] = []
print(Model(n='3').model_dump_json())
try: Model(n='x')
except pydantic.ValidationError as error: print(error.error_count())

== sqlalchemy
from sqlalchemy import create_engine, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
class Base(DeclarativeBase): pass
class Row(Base):
    __tablename__ = 'rows'; id: Mapped[int] = mapped_column(primary_key=True); name: Mapped[str]
engine = create_engine('sqlite:////tmp/a.sqlite'); Base.metadata.create_all(engine)
with Session(engine) as session: session.add(Row(name='x')); session.commit(); print(session.execute(text('select name from rows')).all())

== alembic
import pathlib, subprocess, sys
subprocess.run([sys.executable, '-m', 'alembic', 'init', '/tmp/migrations'], check=True, capture_output=True, cwd='/tmp')
print(sorted(p.name for p in pathlib.Path('/tmp/migrations').iterdir() if p.name != '__pycache__'))

== peewee
import peewee
db = peewee.SqliteDatabase(':memory:')
class T(peewee.Model):
    n = peewee.IntegerField()
    class Meta: database = db
db.create_tables([T]); T.create(n=4); print(T.get().n)

== psutil
import psutil, os
me = psutil.Process(); print(me.pid == os.getpid(), me.memory_info().rss > 0, psutil.cpu_count() > 0, len(psutil.pids()) > 0)
psutil.cpu_percent(0.01); psutil.virtual_memory(); psutil.net_if_addrs(); psutil.net_connections(); psutil.disk_partitions(); me.open_files(); me.threads()

== pexpect
import pexpect
child = pexpect.spawn('/bin/cat', echo=False); child.sendline('hello'); child.expect('hello'); print('saw it'); child.sendeof(); child.expect(pexpect.EOF); child.close()
print(pexpect.run('/bin/sh -c "test -t 0 && echo a terminal"'))

== ptyprocess
import ptyprocess
process = ptyprocess.PtyProcessUnicode.spawn(['/bin/sh', '-c', 'read x; echo got $x; tty > /dev/null && echo tty']); process.write('abc\n')
text = ''
try:
    while True: text += process.read()
except EOFError: print('got abc' in text, 'tty' in text)

== cryptography
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
print(Fernet(Fernet.generate_key()).extract_timestamp.__name__)
key = ec.generate_private_key(ec.SECP256R1()); key.public_key().verify(key.sign(b'm', ec.ECDSA(hashes.SHA256())), b'm', ec.ECDSA(hashes.SHA256()))
box = Fernet(Fernet.generate_key()); print(box.decrypt(box.encrypt(b'secret')), rsa.generate_private_key(65537, 2048).key_size)

== pycryptodome
from Crypto.Cipher import AES
from Crypto.Hash import SHA3_256
print(AES.new(b'k' * 16, AES.MODE_ECB).encrypt(b'm' * 16).hex(), SHA3_256.new(b'x').hexdigest()[:16])

== bcrypt
import bcrypt; print(bcrypt.checkpw(b'x', bcrypt.hashpw(b'x', bcrypt.gensalt(4))))

== pynacl
from nacl.secret import SecretBox
from nacl.signing import SigningKey
print(SecretBox(b'k' * 32).decrypt(SecretBox(b'k' * 32).encrypt(b'm')), len(SigningKey.generate().sign(b'm').signature))

== lxml
from lxml import etree, html
print(etree.fromstring('<a><b c="1"/></a>').xpath('//b/@c'), html.fromstring('<p>x<br>y').text_content())
print(etree.XSLT(etree.XML('<x:stylesheet version="1.0" xmlns:x="http://www.w3.org/1999/XSL/Transform"><x:template match="/"><r/></x:template></x:stylesheet>'))(etree.XML('<a/>')))

== beautifulsoup4
import bs4; print(bs4.BeautifulSoup('<p class=x>a<b>c</b></p>', 'html.parser').select_one('.x b').text)

== html5lib
import html5lib; print(len(html5lib.parse('<p>a<p>b').findall('.//{http://www.w3.org/1999/xhtml}p')))

== markdown
import markdown; print(markdown.markdown('# a\n\n* b', extensions=['tables']))

== mistune
import mistune; print(mistune.html('**b** `c`'))

== docutils
from docutils.core import publish_string; print(b'<h1' in publish_string('Title\n=====\n\ntext', writer_name='html5'))

== sphinx
import pathlib
from sphinx.cmd.build import main
source = pathlib.Path('/tmp/source'); source.mkdir(); (source / 'conf.py').write_text("project = 'x'\n"); (source / 'index.rst').write_text('x\n=\n\ntext\n')
print(main(['-q', '-b', 'html', str(source), '/tmp/html']), pathlib.Path('/tmp/html/index.html').exists())

== pygments
import pygments, pygments.lexers, pygments.formatters
print(pygments.highlight('x = 1', pygments.lexers.PythonLexer(), pygments.formatters.HtmlFormatter())[:40])

== networkx
import networkx as nx; g = nx.petersen_graph(); print(nx.shortest_path_length(g, 0, 7), nx.diameter(g), len(nx.maximal_matching(g)))

== sympy
import sympy
x = sympy.symbols('x'); print(sympy.integrate(sympy.sin(x) ** 2, x), sympy.solve(x ** 2 - 2, x), sympy.Matrix([[1, 2], [3, 4]]).det())

== mpmath
import mpmath; mpmath.mp.dps = 40; print(mpmath.pi, mpmath.zeta(3))

== numba
import numba, numpy as np
@numba.njit
def total(a):
    s = 0.0
    for x in a: s += x
    return s
print(total(np.arange(10.0)))
@numba.njit(parallel=True)
def both(a): return (a * 2).sum()
print(both(np.arange(10.0)))

== llvmlite
import llvmlite.binding as llvm
print(llvm.parse_assembly('define i32 @f() { ret i32 4 }').get_function('f').name, llvm.get_process_triple())

== pyarrow
import pyarrow as pa, pyarrow.parquet as pq, pyarrow.compute as pc
table = pa.table({'a': [1, 2, 3]}); pq.write_table(table, '/tmp/t.parquet'); print(pc.sum(pq.read_table('/tmp/t.parquet')['a']))

== polars
import polars as pl; print(pl.DataFrame({'a': [1, 2, 2]}).group_by('a').len().sort('a').rows())

== duckdb
import duckdb; print(duckdb.sql('select sum(i) from range(10) t(i)').fetchall()); duckdb.connect('/tmp/x.duckdb').execute('create table t as select 1')

== h5py
import h5py, numpy as np
with h5py.File('/tmp/f.h5', 'w') as f: f['x'] = np.arange(5)
with h5py.File('/tmp/f.h5', 'r') as f: print(f['x'][:].sum())

== zarr
import numpy as np, zarr
z = zarr.open('/tmp/z.zarr', mode='w', shape=(10,), chunks=(5,), dtype='i4'); z[:] = np.arange(10); print(int(z[:].sum()))

== numexpr
import numexpr, numpy as np; a = np.arange(1e5); print(numexpr.evaluate('sum(a * 2)'))

== bottleneck
import bottleneck as bn, numpy as np; print(bn.nanmean(np.array([1, np.nan, 3])))

== nltk
import nltk; print(nltk.edit_distance('kitten', 'sitting'), nltk.stem.PorterStemmer().stem('running'))
try: nltk.data.find('corpora/brown')
except LookupError: print('no corpus')

== regex
import regex; print(regex.findall(r'\p{Lu}', 'aBcÄ'), regex.fullmatch(r'(?:ab){e<=1}', 'ac') is not None)

== orjson
import orjson; print(orjson.dumps({'a': [1, 2.5, None]}), orjson.loads(b'[1]'))

== ujson
import ujson; print(ujson.dumps({'a': 'é'}))

== msgpack
import msgpack; print(msgpack.unpackb(msgpack.packb({'a': [1, b'x']})))

== protobuf
from google.protobuf import struct_pb2, json_format
message = struct_pb2.Struct(); message.update({'a': 1}); print(json_format.MessageToDict(struct_pb2.Struct.FromString(message.SerializeToString())))

== grpcio
import grpc
from concurrent import futures
server = grpc.server(futures.ThreadPoolExecutor(2)); port = server.add_insecure_port('127.0.0.1:0')
class Echo(grpc.GenericRpcHandler):
    def service(self, details): return grpc.unary_unary_rpc_method_handler(lambda request, context: request[::-1])
server.add_generic_rpc_handlers((Echo(),)); server.start()
with grpc.insecure_channel(f'localhost:{port}') as channel: print(channel.unary_unary('/x/y')(b'abc', timeout=20))
server.stop(0)

== simplejson
import decimal, simplejson; print(simplejson.dumps({'a': decimal.Decimal('1.10')}))

== jsonschema
import jsonschema; print([e.message for e in jsonschema.Draft202012Validator({'type': 'integer'}).iter_errors('x')])

== marshmallow
from marshmallow import Schema, fields
class S(Schema): n = fields.Int(required=True)
print(S().load({'n': '3'}), S().validate({}))

== pytest
import pathlib, pytest
pathlib.Path('/tmp/test_x.py').write_text('def test_a(tmp_path, capsys):\n    (tmp_path / "f").write_text("x")\n    print(1)\n    assert capsys.readouterr().out == "1\\n"\n')
print(int(pytest.main(['-qq', '--no-summary', '/tmp/test_x.py'])))

== hypothesis
from hypothesis import HealthCheck, given, settings, strategies as st
settings.register_profile('slow', deadline=None, suppress_health_check=list(HealthCheck)); settings.load_profile('slow')
@settings(max_examples=50)
@given(st.lists(st.integers()))
def check(xs): assert sorted(sorted(xs)) == sorted(xs)
check(); print('held')
@given(st.integers())
def wrong(n): assert n < 100
try: wrong()
except AssertionError: print('found one')

== coverage
import coverage
c = coverage.Coverage(data_file='/tmp/.coverage'); c.start(); exec(compile('x = 1', '/tmp/m.py', 'exec')); c.stop(); c.save(); print(len(c.get_data().measured_files()))

== tox
import subprocess, sys, pathlib
pathlib.Path('/tmp/tox.ini').write_text('[tox]\nskipsdist=true\nenv_list=a,b\n')
print(subprocess.run([sys.executable, '-m', 'tox', 'list', '-q', '--root', '/tmp', '--workdir', '/tmp/.tox', '-c', '/tmp/tox.ini'], capture_output=True, text=True, cwd='/tmp').returncode)

== mypy
from mypy import api
open('/tmp/m.py', 'w').write('x: int = "a"\n')
print(api.run(['/tmp/m.py', '--cache-dir', '/tmp/.mypy_cache', '--no-color-output'])[0].count('error:'))

== black
import black; print(black.format_str('x=1;y = 2', mode=black.Mode()))

== isort
import isort; print(isort.code('import sys\nimport os\n'))

== flake8
import subprocess, sys
open('/tmp/f.py', 'w').write('import os\nx=1\n')
print(subprocess.run([sys.executable, '-m', 'flake8', '--isolated', '/tmp/f.py'], capture_output=True, text=True).stdout)

== pylint
import subprocess, sys
open('/tmp/p.py', 'w').write('x = undefined\n')
print('E0602' in subprocess.run([sys.executable, '-m', 'pylint', '--disable=C', '/tmp/p.py'], capture_output=True, text=True, cwd='/tmp').stdout)

== ruff
import os, subprocess, sys
open('/tmp/r.py', 'w').write('import os\n')
import ruff
binary = next(p for p in (os.path.join(d, 'bin', 'ruff') for d in sys.path) if os.path.exists(p))
print('F401' in subprocess.run([binary, 'check', '--isolated', '--no-cache', '/tmp/r.py'], capture_output=True, text=True).stdout)

== setuptools
import pathlib, subprocess, sys
place = pathlib.Path('/tmp/pkg'); place.mkdir(); (place / 'setup.py').write_text("from setuptools import setup\nsetup(name='x', version='1', py_modules=['m'])\n"); (place / 'm.py').write_text('')
print(subprocess.run([sys.executable, 'setup.py', '-q', 'sdist'], cwd=place, capture_output=True).returncode, [p.name for p in (place / 'dist').iterdir()])

== wheel
import subprocess, sys
print(subprocess.run([sys.executable, '-m', 'wheel', 'version'], capture_output=True, text=True).stdout.split()[0])

== packaging
from packaging import tags, version, specifiers
print(version.parse('1.10') > version.parse('1.9'), '2.0' in specifiers.SpecifierSet('>=1'), next(tags.sys_tags()).interpreter)

== virtualenv
import pathlib, virtualenv
virtualenv.cli_run(['/tmp/env', '--no-download', '--without-pip', '--app-data', '/tmp/app-data']); print(pathlib.Path('/tmp/env/bin/python').exists())

== build
import build, pathlib
place = pathlib.Path('/tmp/b'); place.mkdir(); (place / 'pyproject.toml').write_text("[build-system]\nrequires=['setuptools']\nbuild-backend='setuptools.build_meta'\n")
print(build.ProjectBuilder(place).build_system_requires)

== poetry-core
from poetry.core.constraints.version import parse_constraint, Version; print(parse_constraint('^1.2').allows(Version.parse('1.9')))

== more-itertools
import more_itertools; print(list(more_itertools.chunked(range(5), 2)))

== toolz
import toolz; print(toolz.groupby(len, ['a', 'bb', 'c']))

== sortedcontainers
from sortedcontainers import SortedList; print(SortedList([3, 1, 2]).bisect(2))

== cachetools
import cachetools
@cachetools.cached(cachetools.LRUCache(10))
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
print(fib(60))

== joblib
import math
from joblib import Memory, Parallel, delayed
print(Parallel(2)(delayed(math.sqrt)(i) for i in (1, 4, 9)), Memory('/tmp/cache', verbose=0).cache(math.sqrt)(16))

== cloudpickle
import cloudpickle, pickle; n = 3; print(pickle.loads(cloudpickle.dumps(lambda x: x + n))(4))

== dill
import dill; print(dill.loads(dill.dumps(lambda x: x * 2))(4))

== dask
import dask.array as da; print(da.arange(1000, chunks=100).sum().compute())
import dask; print(dask.compute(*[dask.delayed(pow)(i, 2) for i in range(4)], scheduler='processes'))

== gevent
from gevent import monkey; monkey.patch_all()
import gevent, gevent.pool, socket
print(gevent.pool.Pool(3).map(lambda x: x * x, range(4)), socket.gethostbyname('localhost'))
import gevent.subprocess; print(gevent.subprocess.check_output(['echo', 'x']))

== greenlet
import greenlet
def child(): parent.switch(1)
parent = greenlet.getcurrent(); print(greenlet.greenlet(child).switch())

== trio
import trio
async def main():
    with trio.move_on_after(5):
        async with trio.open_nursery() as nursery:
            listeners = await trio.open_tcp_listeners(0, host='127.0.0.1')
            async def echo(stream): await stream.send_all(await stream.receive_some())
            nursery.start_soon(trio.serve_listeners, echo, listeners)
            stream = await trio.open_tcp_stream('localhost', listeners[0].socket.getsockname()[1]); await stream.send_all(b'x'); print(await stream.receive_some()); nursery.cancel_scope.cancel()
trio.run(main)

== anyio
import anyio
async def main(): print(await anyio.to_thread.run_sync(sum, (1, 2)), (await anyio.run_process(['echo', 'x'])).stdout)
anyio.run(main)

== twisted
from twisted.internet import protocol, reactor, endpoints
class Echo(protocol.Protocol):
    def dataReceived(self, data): self.transport.write(data)
class Client(protocol.Protocol):
    def connectionMade(self): self.transport.write(b'ping')
    def dataReceived(self, data): print(data); reactor.stop()
port = reactor.listenTCP(0, protocol.Factory.forProtocol(Echo), interface='127.0.0.1')
endpoints.connectProtocol(endpoints.TCP4ClientEndpoint(reactor, '127.0.0.1', port.getHost().port), Client()); reactor.run()

== tornado
import asyncio, tornado.web, tornado.httpclient, tornado.httpserver, tornado.netutil
class Main(tornado.web.RequestHandler):
    def get(self): self.write('t')
async def main():
    sockets = tornado.netutil.bind_sockets(0, 'localhost'); server = tornado.httpserver.HTTPServer(tornado.web.Application([('/', Main)])); server.add_sockets(sockets)
    print((await tornado.httpclient.AsyncHTTPClient().fetch(f'http://localhost:{sockets[0].getsockname()[1]}/')).body)
asyncio.run(main())

== opencv-python-headless
import cv2, numpy as np
image = np.zeros((64, 64, 3), np.uint8); cv2.circle(image, (32, 32), 10, (255, 0, 0), -1)
print(cv2.Canny(image, 50, 150).shape, cv2.imencode('.png', image)[0], cv2.getNumThreads() > 0)

== scikit-image
import numpy as np
from skimage import data, filters, measure
print(round(float(filters.threshold_otsu(np.arange(100).reshape(10, 10))), 2), measure.label(np.eye(4)).max())

== imageio
import imageio.v3 as iio, numpy as np; iio.imwrite('/tmp/i.png', np.zeros((4, 4), np.uint8)); print(iio.imread('/tmp/i.png').shape)

== shapely
from shapely.geometry import Point, box; print(round(Point(0, 0).buffer(1).area, 2), box(0, 0, 2, 2).intersection(box(1, 1, 3, 3)).area)

== pyproj
import pyproj; print([round(v) for v in pyproj.Transformer.from_crs(4326, 3857, always_xy=True).transform(1, 1)])

== biopython
from Bio.Seq import Seq; from Bio import Align; print(Seq('ATGGCC').translate(), Align.PairwiseAligner().score('ACGT', 'AGT'))

== openpyxl
import openpyxl; book = openpyxl.Workbook(); book.active['A1'] = 3; book.save('/tmp/b.xlsx'); print(openpyxl.load_workbook('/tmp/b.xlsx').active['A1'].value)

== xlsxwriter
import xlsxwriter; book = xlsxwriter.Workbook('/tmp/x.xlsx'); book.add_worksheet().write(0, 0, 'x'); book.close(); print(open('/tmp/x.xlsx', 'rb').read(2))

== reportlab
from reportlab.pdfgen import canvas; c = canvas.Canvas('/tmp/r.pdf'); c.drawString(9, 9, 'x'); c.save(); print(open('/tmp/r.pdf', 'rb').read(5))

== pypdf
import pypdf; w = pypdf.PdfWriter(); w.add_blank_page(99, 99); w.write('/tmp/p.pdf'); print(len(pypdf.PdfReader('/tmp/p.pdf').pages))

== plotly
import plotly.graph_objects as go; print(len(go.Figure(go.Bar(y=[1, 2])).to_html()) > 1000)

== bokeh
from bokeh.plotting import figure; from bokeh.embed import file_html; p = figure(); p.line([1, 2], [3, 4]); print('<html' in file_html(p, 'cdn'))

== altair
import altair as alt, pandas as pd; print(alt.Chart(pd.DataFrame({'a': [1]})).mark_bar().encode(x='a:Q').to_dict()['mark'])

== faker
from faker import Faker; Faker.seed(1); print(Faker().name())

== freezegun
import datetime, freezegun
with freezegun.freeze_time('2020-02-02'): print(datetime.date.today())

== paramiko
import io, paramiko; key = paramiko.RSAKey.generate(1024); text = io.StringIO(); key.write_private_key(text); print(key.get_bits())

== boto3
import boto3; print(sorted(boto3.client('s3', region_name='eu-west-1', aws_access_key_id='a', aws_secret_access_key='b').generate_presigned_url('get_object', Params={'Bucket': 'x', 'Key': 'y'}).split('?')[0].split('/'))[-1])

== redis
import redis
try: redis.Redis(host='127.0.0.1', port=9, socket_timeout=2).ping()
except redis.ConnectionError: print('refused')

== pymongo
import bson, pymongo
print(bson.decode(bson.encode({'a': 1})))
try: pymongo.MongoClient('127.0.0.1', 9, serverSelectionTimeoutMS=300).admin.command('ping')
except pymongo.errors.ServerSelectionTimeoutError: print('refused')

== zstandard
import zstandard; print(zstandard.decompress(zstandard.compress(b'x' * 1000, 3))[:3])

== lz4
import lz4.frame; print(lz4.frame.decompress(lz4.frame.compress(b'x' * 1000))[:3])

== brotli
import brotli; print(brotli.decompress(brotli.compress(b'x' * 1000))[:3])

== blosc2
import blosc2; print(blosc2.decompress(blosc2.compress(b'x' * 10000, typesize=1))[:3])

== watchdog
import pathlib, queue, watchdog.events, watchdog.observers
seen = queue.Queue()
class Handler(watchdog.events.FileSystemEventHandler):
    def on_created(self, event): seen.put(pathlib.Path(event.src_path).name)
pathlib.Path('/tmp/watched').mkdir(); observer = watchdog.observers.Observer(); observer.schedule(Handler(), '/tmp/watched', recursive=True); observer.start()
pathlib.Path('/tmp/watched/f').touch(); print(seen.get(timeout=10)); observer.stop(); observer.join()

== ipython
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(); print(shell.run_cell('x = 6 * 7; x').result, shell.run_line_magic('pwd', '') is not None)
import subprocess, sys; print(subprocess.run([sys.executable, '-m', 'IPython', '--no-banner', '-c', 'print(1+1)'], capture_output=True, text=True).stdout)

== prompt-toolkit
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from prompt_toolkit import PromptSession
with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()): pipe.send_text('hello\n'); print(PromptSession().prompt('> '))

== pyzmq
import zmq
context = zmq.Context(); a = context.socket(zmq.REP); port = a.bind_to_random_port('tcp://127.0.0.1'); b = context.socket(zmq.REQ); b.connect(f'tcp://127.0.0.1:{port}'); b.send(b'x'); print(a.recv()); a.send(b'y'); print(b.recv()); context.destroy()

== jupyter-client
import jupyter_client.kernelspec; print(type(jupyter_client.kernelspec.KernelSpecManager().find_kernel_specs()).__name__)

== nbformat
import nbformat.v4 as v; import nbformat; n = v.new_notebook(cells=[v.new_code_cell('1')]); nbformat.validate(n); print(len(nbformat.writes(n)) > 100)

== cython
import Cython.Compiler.Main as m; open('/tmp/c.pyx', 'w').write('def f(int x): return x + 1\n'); print(m.compile('/tmp/c.pyx', language_level=3).num_errors)

== cffi
import cffi; ffi = cffi.FFI(); ffi.cdef('int abs(int);'); print(ffi.dlopen(None).abs(-4))

== pycparser
from pycparser import c_parser; print(type(c_parser.CParser().parse('int f(int x) { return x; }').ext[0]).__name__)

== simpy
import simpy
def clock(env):
    for _ in range(3): yield env.timeout(2)
env = simpy.Environment(); env.process(clock(env)); env.run(); print(env.now)

== ortools
from ortools.sat.python import cp_model
m = cp_model.CpModel(); x = m.new_int_var(0, 9, 'x'); m.add(x * 2 == 8); s = cp_model.CpSolver(); s.parameters.num_workers = 1; s.solve(m); print(s.value(x))

== cvxpy
import cvxpy as cp; x = cp.Variable(); p = cp.Problem(cp.Minimize((x - 3) ** 2)); p.solve(); print(round(float(x.value), 3))

== pulp
import pulp; p = pulp.LpProblem('x', pulp.LpMaximize); x = pulp.LpVariable('a', 0, 4); p += x; p.solve(pulp.PULP_CBC_CMD(msg=False)); print(pulp.value(x))

== gmpy2
import gmpy2; print(gmpy2.next_prime(10 ** 30), gmpy2.is_prime(97))
"""


def programs():
    """Package → program."""
    found = {}
    for part in _PROGRAMS.split("\n== ")[1:]:
        name, _, program = part.partition("\n")
        found[name] = program.strip() + "\n"
    return found
