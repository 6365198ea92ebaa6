#include "zygote/python_command.h"

#include <gtest/gtest.h>

namespace caisson::zygote {
namespace {

using Kind = PythonCommand::Kind;

TEST(PythonCommandTest, TakesWhatAVerificationRuns) {
  const PythonCommand file = ReadPythonCommand({"python3", "/workspace/main.py", "-v", "x"});
  EXPECT_EQ(file.kind, Kind::kFile);
  EXPECT_EQ(file.target, "/workspace/main.py");
  EXPECT_EQ(file.arguments, (std::vector<std::string>{"-v", "x"}));
  EXPECT_FALSE(file.isolated || file.no_bytecode || file.no_site_packages);

  const PythonCommand text = ReadPythonCommand({"python3", "-I", "-SB", "-c", "pass", "-I"});
  EXPECT_EQ(text.kind, Kind::kText);
  EXPECT_EQ(text.target, "pass");
  EXPECT_EQ(text.arguments, std::vector<std::string>{"-I"});
  EXPECT_TRUE(text.isolated && text.no_bytecode && text.no_site_packages);

  EXPECT_EQ(ReadPythonCommand({"python3", "-m", "unittest", "-v"}).kind, Kind::kModule);
}

TEST(PythonCommandTest, LeavesTheRestToAnInterpreterOfItsOwn) {
  const std::vector<std::vector<std::string>> others = {
      {"python3"},
      {"python3", "-"},
      {"python3", "-c"},
      {"python3", "-i", "a.py"},
      {"python3", "-X", "dev", "a.py"},
      {"python3", "-u", "a.py"},
      {"python3", "-Bc", "pass"},
      {"python3", "--version"},
      {"python3", "package"},
      {"python3", "app.pyz"},
      {"python3", ""},
      {"python3", "-m"},
  };
  for (const auto& argv : others) EXPECT_EQ(ReadPythonCommand(argv).kind, Kind::kNone) << argv.back();
}

TEST(StartVariablesTest, AreThoseReadBeforeTheProgramBegins) {
  EXPECT_EQ(StartVariables({"PATH=/bin", "PYTHONUTF8=1", "LANG=C", "LC_ALL=C", "HOME=/", "LD_PRELOAD=x"}),
            (std::vector<std::string>{"LANG=C", "LC_ALL=C", "LD_PRELOAD=x", "PYTHONUTF8=1"}));
  EXPECT_TRUE(StartVariables({"PATH=/bin", "TZ=UTC"}).empty());
}

}  // namespace
}  // namespace caisson::zygote
