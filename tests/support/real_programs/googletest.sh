# Configures GoogleTest's sources in the current directory, builds part of it in place and runs some of its own tests.
# Standard output is what may not depend on where it was built: object files, and what each test reports.
set -eu
tests='googletest-death-test-test googletest-filepath-test gtest_stress_test'
cmake -S . -B build -G 'Unix Makefiles' -DBUILD_GMOCK=OFF -DINSTALL_GTEST=OFF -Dgtest_build_tests=ON \
  -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS="-O0 -w -ffile-prefix-map=$PWD=." >&2
make -C build -j2 $tests >&2
cd build
find . -name '*.o' | sort | xargs sha256sum
# Its tests leave files in the temporary directory; it must be empty before.
mkdir tmp && export TEST_TMPDIR="$PWD/tmp"
for test in $tests; do
  echo "== $test"
  # The stress test's own report is of failures it makes on purpose, in any order; CTest knows whether it passed.
  [ $test = gtest_stress_test ] ||
    googletest/$test --gtest_color=no --gtest_print_time=0 2>/dev/null | grep -E '^\[ +(OK|FAILED|SKIPPED|PASSED) '
  ctest -R "^$test\$" | sed -nE '/Passed|Failed/s/ +[0-9.]+ sec//p'
done
