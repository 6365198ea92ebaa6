#include "image/manifest.h"

#include <gtest/gtest.h>

#include <string>

namespace caisson::image {
namespace {

const std::string kHash(64, 'a');

std::string Blobbed(const std::string& more) {
  return R"({"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": "sha256:)" + kHash +
         R"(", "size": 7)" + more + "}";
}

TEST(ReadIndex, ChoosesThisMachine) {
  const std::string other = std::string(ThisArchitecture()) == "amd64" ? "arm64" : "amd64";
  const auto with = [&](const std::string& machine) {
    return Blobbed(R"(, "platform": {"os": "linux", "architecture": ")" + machine + "\"}");
  };
  const auto choices = ReadIndex(R"({"manifests": [)" + with(other) + "," + with(ThisArchitecture()) + "]}");
  ASSERT_TRUE(choices) << choices.error().message;
  ASSERT_EQ(choices->size(), 1U);
  EXPECT_EQ((*choices)[0].blob.path, "blobs/sha256/" + kHash);
  EXPECT_EQ((*choices)[0].blob.size, 7);
  EXPECT_FALSE((*choices)[0].nested);
}

TEST(ReadIndex, RefusesWhatIsNoIndex) {
  for (const char* text : {"", "{}", "[]", "null", R"({"manifests": 1})", R"({"manifests": [1]})",
                           R"({"manifests": [{}]})", R"({"manifests": [{"digest": "sha256:..", "size": 1}]})",
                           R"({"manifests": [{"digest": "md5:00", "size": 1}]})"})
    EXPECT_FALSE(ReadIndex(text)) << text;
}

TEST(ReadManifest, LayersInOrder) {
  const auto manifest = ReadManifest(R"({"config": )" + Blobbed("") + R"(, "layers": [)" + Blobbed("") + "]}");
  ASSERT_TRUE(manifest) << manifest.error().message;
  EXPECT_EQ(manifest->config.sha256, kHash);
  EXPECT_EQ(manifest->layers.size(), 1U);
  EXPECT_FALSE(ReadManifest(R"({"config": )" + Blobbed("") + "}"));
  EXPECT_FALSE(ReadManifest(R"({"config": )" + Blobbed("") + R"(, "layers": [{"mediaType": "x", "digest": "sha256:)" +
                            kHash + R"(", "size": 1}]})"));
}

TEST(ReadDockerManifest, PathsStayInTheArchive) {
  const auto read = [](const std::string& layer) {
    return ReadDockerManifest(R"([{"Config": ")" + kHash + R"(.json", "Layers": [")" + layer + "\"]}]");
  };
  const auto manifest = read(kHash + "/layer.tar");
  ASSERT_TRUE(manifest) << manifest.error().message;
  EXPECT_EQ(manifest->config.sha256, kHash);
  EXPECT_EQ(manifest->layers[0].sha256, "");
  EXPECT_EQ(read("blobs/sha256/" + kHash)->layers[0].sha256, kHash);
  for (const char* path : {"", "/etc/passwd", "../x", "a/../b", "a//b", "."}) EXPECT_FALSE(read(path)) << path;
  EXPECT_FALSE(ReadDockerManifest("[]"));
  EXPECT_FALSE(ReadDockerManifest(R"([{"Config": "a", "Layers": []}, {"Config": "a", "Layers": []}])"));
}

TEST(ReadConfig, GoWritesNullForNothing) {
  const auto read = ReadConfig(R"({"os": "linux", "architecture": ")" + std::string(ThisArchitecture()) +
                               R"(", "rootfs": {"diff_ids": ["sha256:)" + kHash +
                               R"("]}, "config": {"Env": ["A=1", "B=x=y", "A=2"], "Cmd": null, "Entrypoint": ["a"],)"
                               R"( "WorkingDir": "/w", "User": null}})");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->unpacked_layers, std::vector<std::string>{kHash});
  const std::vector<std::pair<std::string, std::string>> env = {{"A", "2"}, {"B", "x=y"}};
  EXPECT_EQ(read->config.env, env);
  EXPECT_EQ(read->config.working_directory, "/w");
  EXPECT_TRUE(read->config.command.empty());
  const auto again = ReadCanonical(Canonical(read->config));
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, read->config);
}

TEST(ReadConfig, Refuses) {
  for (const char* text : {"{}", R"({"rootfs": 1})", R"({"os": "windows", "rootfs": {}})",
                           R"({"architecture": "m68k", "rootfs": {}})", R"({"rootfs": {}, "config": {"Env": ["A"]}})",
                           R"({"rootfs": {}, "config": {"Env": ["=a"]}})", R"({"rootfs": {}, "config": []})",
                           R"({"rootfs": {"diff_ids": ["x"]}})", R"({"rootfs": {}, "config": {"Cmd": ["a\u0000b"]}})"})
    EXPECT_FALSE(ReadConfig(text)) << text;
}

}  // namespace
}  // namespace caisson::image
