// Compiles a system-call policy into C++ source, when the project is built:
//   seccomp_compile NAME POLICY.json OUT.cc   the program and its notify rules, as kSeccompName
//   seccomp_compile --names OUT.cc            the names of the native system calls
// Only data is linked into the sandbox: neither a JSON parser nor a filter compiler runs there.
#include <openssl/sha.h>

#include <cctype>
#include <cstdio>
#include <exception>
#include <fstream>
#include <sstream>
#include <string>

#include "seccomp_codegen.h"
#include "seccomp_policy.h"

namespace caisson::tools {
namespace {

constexpr char kHeader[] = "// Written by seccomp_compile; do not edit.\n#include \"sandbox/seccomp_program.h\"\n\n";

std::string Hex(uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

std::string Sha256(const std::string& text) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  std::string hex;
  for (const unsigned char byte : digest) {
    char pair[3];
    std::snprintf(pair, sizeof(pair), "%02x", byte);
    hex += pair;
  }
  return hex;
}

void WriteNotifyRule(std::ostream& out, const std::string& number, const PolicyNotice& notice,
                     const std::vector<PolicyTest>& tests) {
  out << "    {" << number << ", Disposition::" << notice.disposition << ", " << notice.errno_value
      << ", ViolationClass::" << notice.violation_class << ", \"" << notice.reason << "\", " << tests.size() << ", {";
  for (const PolicyTest& test : tests) {
    out << "{" << test.index << ", " << Hex(test.mask) << ", " << Hex(test.value) << "}, ";
  }
  out << "}},\n";
}

std::string WriteProgram(const std::string& name, const Policy& policy) {
  std::string symbol = "kSeccomp";  // "balanced-watched" is kSeccompBalancedWatched
  bool capital = true;
  for (const char letter : name) {
    if (letter != '-') symbol += capital ? static_cast<char>(letter - 'a' + 'A') : letter;
    capital = letter == '-';
  }
  std::ostringstream out;
  out << kHeader << "namespace caisson::sandbox {\nnamespace {\n\nconstexpr sock_filter kFilter[] = {\n";
  for (const sock_filter& instruction : GenerateFilter(policy)) {
    out << "    {" << Hex(instruction.code) << ", " << unsigned{instruction.jt} << ", " << unsigned{instruction.jf}
        << ", " << Hex(instruction.k) << "},\n";
  }
  out << "};\n\nconstexpr NotifyRule kRules[] = {\n";
  WriteNotifyRule(out, "kForeignArchitecture", policy.foreign, {});
  for (const auto& [number, rules] : policy.rules) {
    for (const PolicyRule& rule : rules) {
      if (rule.notice) WriteNotifyRule(out, std::to_string(number), *rule.notice, rule.tests);
    }
  }
  out << "};\n\n}  // namespace\n\nextern const SeccompProgram " << symbol << ";\nconstinit const SeccompProgram "
      << symbol << " = {\"" << name << "\", \"" << Sha256(policy.source)
      << "\", kFilter, kRules};\n\n}  // namespace caisson::sandbox\n";
  return out.str();
}

std::string WriteNames() {
  int end = kSyscallNumberEnd;
  while (end > 0 && SyscallNameOf(end - 1).empty()) --end;
  std::ostringstream out;
  out << "// Written by seccomp_compile; do not edit.\n#include <span>\n\nnamespace caisson::linux_sys {\nnamespace "
         "{\n\nconstexpr const char* kNames[] = {\n";
  for (int number = 0; number < end; ++number) {
    const std::string name = SyscallNameOf(number);
    out << "    " << (name.empty() ? "nullptr" : "\"" + name + "\"") << ",\n";
  }
  out << "};\n\n}  // namespace\n\nextern const std::span<const char* const> kSyscallNames;\n"
         "constinit const std::span<const char* const> kSyscallNames = kNames;\n\n}  // namespace caisson::linux_sys\n";
  return out.str();
}

void CompareWholeRegisters(Policy& policy) {
  for (auto& [number, rules] : policy.rules) {
    for (PolicyRule& rule : rules) {
      for (PolicyTest& test : rule.tests) {
        if (test.mask == 0xffffffff) test.mask = ~uint64_t{0};
      }
    }
  }
}

void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream << text;
  stream.close();
  if (!stream) throw PolicyError(path + ": cannot be written");
}

int Main(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (argc == 3 && first == "--names") {
    WriteFile(argv[2], WriteNames());
    return 0;
  }
  // The name becomes part of a C++ identifier.
  if (argc != 4 || first.empty() || first.find_first_not_of("abcdefghijklmnopqrstuvwxyz-") != std::string::npos) {
    std::fprintf(stderr, "usage: seccomp_compile NAME POLICY.json OUT.cc | seccomp_compile --names OUT.cc\n");
    return 2;
  }
  Policy policy = LoadPolicy(argv[2]);
  // The mistake that the masks prevent, for a build that proves that the tests would notice it.
  if (first == "balanced-unmasked") CompareWholeRegisters(policy);
  WriteFile(argv[3], WriteProgram(first, policy));
  return 0;
}

}  // namespace
}  // namespace caisson::tools

int main(int argc, char** argv) {
  try {
    return caisson::tools::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "seccomp_compile: %s\n", error.what());
    return 1;
  }
}
