"""Tools of npm and a little use of each: one line with the tool and its packages, then the shell script that uses it.

A script starts in an empty writable directory with the files of PRELUDE, finds the tools in PATH and the packages in
$NODE_PATH, and prints what does not depend on where it runs. The tools of SHORT are tried in every run of the suite, the
others with CAISSON_ALL_WHEELS=1.
"""

SHORT = "typescript eslint prettier esbuild mocha".split()

PRELUDE = r"""
set -e
cat > a.js <<'END'
const add = (x, y) => { return x + y; };
module.exports = { add };
if (require.main === module) console.log(add(2, 3));
END
cat > m.mjs <<'END'
import { b } from './n.mjs';
console.log(b * 2);
END
echo 'export const b = 21; export const unused = 1;' > n.mjs
cat > a.ts <<'END'
interface Point { x: number; y: number }
const p: Point = { x: 1, y: 2 };
console.log(p.x + p.y);
END
echo 'a { color: red; } a { display: flex; margin: 0px 0px; }' > a.css
echo '@c: #f00; a { b { color: darken(@c, 10%); } }' > a.less
echo '$c: red; a { b { color: $c; } }' > a.scss
printf '# title\n\n* one\n* two\n' > a.md
printf 'a: [1, {b: c}]\n' > a.yaml
echo '<svg xmlns="http://www.w3.org/2000/svg"><g><g><path d="M 0 0 L 10 10"/></g></g></svg>' > a.svg
printf '<!DOCTYPE html>\n<html>\n  <body>\n    <p>  x  </p>\n  </body>\n</html>\n' > a.html
echo '{"name": "x", "version": "1.0.0", "license": "MIT"}' > package.json
"""

_TOOLS = r"""
== typescript typescript@7.0.2
tsc --strict --target es2020 a.ts && node a.js
printf 'const n: number = "x";\n' > wrong.ts; tsc --noEmit wrong.ts || true
tsc --watch --preserveWatchOutput a.ts > watch.log & i=0; until grep -q 'Watching for' watch.log || [ $i -gt 300 ]; do sleep 0.1; i=$((i+1)); done; kill $!; grep -o 'Found 0 errors' watch.log

== eslint eslint@8.57.1
echo '{"root": true, "env": {"node": true, "es2020": true}, "rules": {"no-undef": 2, "semi": 2}}' > .eslintrc.json
echo 'undefinedThing()' > wrong.js; eslint --cache --format unix a.js && eslint --format unix wrong.js | sed "s,$PWD,,g" || true

== prettier prettier@3.10.1
prettier a.js a.css a.md a.yaml a.html a.ts

== esbuild esbuild@0.28.2
esbuild m.mjs --bundle --minify --outfile=out.js 2>/dev/null; node out.js

== mocha mocha@12.0.3
mkdir test; echo "const a=require('../a');require('assert');it('adds',()=>{if(a.add(1,2)!==3)throw 1})" > test/t.js; mocha --reporter dot | grep -c passing

== webpack webpack@5.112.2 webpack-cli@7.3.1
webpack --mode production --entry ./m.mjs -o dist > /dev/null; node dist/main.js

== rollup rollup@4.68.3
rollup m.mjs --format cjs --silent

== vite vite@8.3.8
echo '<script type="module" src="/m.mjs"></script>' > index.html; vite build --logLevel error; ls dist

== jest jest@30.5.2
echo "test('adds', () => expect(require('./a').add(1, 2)).toBe(3))" > a.test.js; jest 2>&1 | grep -o '1 passed, 1 total'

== tape tape@5.10.2
echo "require('tape')('x', t => { t.equal(1, 1); t.end(); })" > t.js; tape t.js | tail -3

== babel @babel/core@7.29.13 @babel/cli@7.29.7 @babel/preset-env@7.29.14
babel --presets=$NODE_PATH/@babel/preset-env a.js

== terser terser@5.51.2
terser a.js --compress --mangle

== uglify-js uglify-js@3.19.3
uglifyjs a.js -c -m

== less less@4.9.1
lessc a.less

== sass sass@1.108.2
sass --no-source-map a.scss

== postcss postcss@8.5.33 postcss-cli@11.0.1 autoprefixer@10.6.2
postcss a.css --no-map -u $NODE_PATH/autoprefixer/lib/autoprefixer.js

== tailwindcss tailwindcss@3.4.19
echo '@tailwind utilities;' > in.css; echo '<p class="flex m-1">' > c.html; tailwindcss -i in.css --content c.html 2>/dev/null

== stylelint stylelint@17.16.0
echo '{"rules": {"color-named": "never"}}' > .stylelintrc.json; stylelint a.css 2>&1 | grep -o 'color-named' || true

== svgo svgo@4.1.0
svgo -i a.svg -o - 

== csso csso-cli@4.0.2
csso a.css

== clean-css clean-css-cli@5.6.3
cleancss a.css

== html-minifier html-minifier-terser@7.2.0
html-minifier-terser --collapse-whitespace a.html

== tsx tsx@4.23.15
tsx a.ts

== swc @swc/core@1.16.22
node -e "console.log(require('@swc/core').transformSync('let x: number = 1', {jsc: {parser: {syntax: 'typescript'}}}).code)"

== marked marked@18.2.0
marked -i a.md

== js-yaml js-yaml@5.5.0
js-yaml a.yaml

== semver semver@7.8.6
semver 1.2.3 -i minor; semver -r '>=2' 1.0.0 2.1.0

== rimraf rimraf@6.1.4
mkdir -p gone/deep; rimraf gone; ls

== mkdirp mkdirp@3.0.1
mkdirp p/q/r; find p

== nodemon nodemon@3.1.14
nodemon --quiet --exec 'node a.js; kill $PPID' a.js 2>/dev/null | head -1 || true

== http-server http-server@14.1.1
http-server -p 18080 -a 127.0.0.1 -s . & server=$!; i=0; until node -e "fetch('http://127.0.0.1:18080/a.md').then(r=>r.text()).then(t=>console.log(t.length))" 2>/dev/null || [ $i -gt 50 ]; do sleep 0.2; i=$((i+1)); done; kill $server

== concurrently concurrently@9.2.5
concurrently --raw 'echo one' | sort

== cross-env cross-env@10.1.0
cross-env A=5 sh -c 'echo $A'

== nyc nyc@18.0.0
nyc --temp-dir /tmp/nyc --reporter=text-summary node a.js 2>&1 | grep -c Statements

== c8 c8@12.0.0
c8 --temp-directory /tmp/c8 --reporter=text-summary node a.js 2>&1 | grep -c Statements

== standard standard@17.1.2
standard a.js 2>&1 | grep -o 'Extra semicolon' | head -1 || true

== jshint jshint@2.13.6
jshint --config /dev/null m.mjs > /dev/null || echo found

== chokidar chokidar-cli@3.0.0
chokidar a.md > log 2>&1 & watcher=$!; i=0; until grep -q change:a.md log || [ $i -gt 300 ]; do sleep 0.1; echo $i >> a.md; i=$((i+1)); done; kill $watcher; grep -m1 change:a.md log

== depcheck depcheck@1.4.7
depcheck . --json | grep -o '"dependencies":\[\]'

== ejs ejs@7.0.2
echo '<%= 6 * 7 %>' > a.ejs; ejs a.ejs

== handlebars handlebars@4.7.10
echo '{{x}}' > a.hbs; handlebars a.hbs | wc -l

== mustache mustache@4.2.0
echo '{"x": 1}' > v.json; echo 'v={{x}}' > a.mustache; mustache v.json a.mustache

== cowsay cowsay@1.6.0
cowsay hello

== parcel parcel@2.16.4
echo 'console.log(1)' > p.js; parcel build p.js --no-cache --dist-dir out --log-level error > /dev/null && node out/p.js
"""


def tools():
    """Tool → (packages, script)."""
    found = {}
    for part in _TOOLS.split("\n== ")[1:]:
        line, _, script = part.partition("\n")
        name, *packages = line.split()
        found[name] = (packages, PRELUDE + script.strip() + "\n")
    return found
