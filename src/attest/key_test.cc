#include "attest/key.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "support/base64.h"
#include "support/corpus.h"
#include "verify/digest.h"

namespace caisson::attest {
namespace {

std::string Bytes(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

std::string Pem(const char* kind, const std::string& der) {
  const std::string label = std::string(kind) + "-----\n";
  return "-----BEGIN " + label + testing::Base64(der) + "\n-----END " + label;
}
// RFC 8410: what stands around the 32 bytes of a key.
std::string PublicPem(const std::string& raw) { return Pem("PUBLIC KEY", Bytes("302a300506032b6570032100") + raw); }
std::string PrivatePem(const std::string& seed) {
  return Pem("PRIVATE KEY", Bytes("302e020100300506032b657004220420") + seed);
}

struct Vector {
  const char* seed;
  const char* public_key;
  const char* message;
  const char* signature;
};

// RFC 8032, section 7.1.
constexpr Vector kVectors[] = {
    {"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
     "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
     "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe246"
     "55141438e7a100b"},
    {"4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
     "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
     "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb"
     "00d291612bb0c00"},
    {"c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
     "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
     "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc"
     "027beceea1ec40a"},
};

TEST(Keys, SignAndVerifyAsRfc8032Does) {
  for (const Vector& vector : kVectors) {
    const Result<PrivateKey> key = PrivateKey::FromPem(PrivatePem(Bytes(vector.seed)));
    ASSERT_TRUE(key) << key.error().message;
    const std::string message = Bytes(vector.message);
    EXPECT_EQ(key->Sign(message), Bytes(vector.signature));
    const Result<PublicKey> half = PublicKey::FromPem(PublicPem(Bytes(vector.public_key)));
    ASSERT_TRUE(half) << half.error().message;
    EXPECT_TRUE(half->Verifies(message, Bytes(vector.signature)));
    EXPECT_EQ(key->id(), half->id());
    EXPECT_EQ(half->id(), verify::Sha256Hex(Bytes("302a300506032b6570032100") + Bytes(vector.public_key)));
  }
}

TEST(PublicKey, RefusesWhatWasNotSigned) {
  const Result<PublicKey> key = PublicKey::FromPem(PublicPem(Bytes(kVectors[1].public_key)));
  ASSERT_TRUE(key);
  const std::string message = Bytes(kVectors[1].message), signature = Bytes(kVectors[1].signature);
  EXPECT_FALSE(key->Verifies(message + "x", signature));
  EXPECT_FALSE(key->Verifies("", signature));
  EXPECT_FALSE(key->Verifies(message, ""));
  EXPECT_FALSE(key->Verifies(message, signature.substr(1)));
  EXPECT_FALSE(key->Verifies(message, signature + '\0'));
  for (size_t i = 0; i < signature.size(); ++i) {
    std::string changed = signature;
    changed[i] ^= 1;
    EXPECT_FALSE(key->Verifies(message, changed)) << i;
  }
  // S + the group's order would be a second spelling of the same signature.
  std::string second = signature;
  const std::string order = Bytes("edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010");
  for (unsigned i = 0, carry = 0; i < 32; ++i) {
    carry += (signature[32 + i] & 0xFFU) + (order[i] & 0xFFU);
    second[32 + i] = static_cast<char>(carry);
    carry >>= 8;
  }
  EXPECT_FALSE(key->Verifies(message, second));
}

TEST(Keys, OfOtherKindsAreRefused) {
  const auto fault = [](const std::string& pem) {
    const Result<PublicKey> key = PublicKey::FromPem(pem);
    return key ? "accepted" : key.error().message;
  };
  EXPECT_EQ(fault(""), "holds no public key (PEM, BEGIN PUBLIC KEY)");
  EXPECT_EQ(fault(PrivatePem(Bytes(kVectors[0].seed))), "holds no public key (PEM, BEGIN PUBLIC KEY)");
  // X25519: the same length, for another purpose.
  EXPECT_EQ(fault(Pem("PUBLIC KEY", Bytes("302a300506032b656e032100") + Bytes(kVectors[0].public_key))),
            "is a key of another kind; only Ed25519 is accepted");
  EXPECT_FALSE(PrivateKey::FromPem(PublicPem(Bytes(kVectors[0].public_key))));
  EXPECT_FALSE(
      PrivateKey::FromPem(Pem("PRIVATE KEY", Bytes("302e020100300506032b656e04220420") + Bytes(kVectors[0].seed))));
}

class KeyFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/caisson-key-test-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    directory_ = name;
    path_ = directory_ + "/key";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string FaultOfLoading() const {
    const Result<PrivateKey> key = LoadPrivateKey(path_);
    return key ? "accepted" : key.error().message;
  }

  std::string directory_, path_;
};

TEST_F(KeyFiles, AreMadeForTheirOwner) {
  const Result<std::string> id = GenerateKey(path_);
  ASSERT_TRUE(id) << id.error().message;
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600U);
  EXPECT_EQ(testing::Slurp(path_).substr(0, 28), "-----BEGIN PRIVATE KEY-----\n");
  const Result<PrivateKey> key = LoadPrivateKey(path_);
  ASSERT_TRUE(key) << key.error().message;
  const Result<PublicKey> half = LoadPublicKey(path_ + ".pub");
  ASSERT_TRUE(half) << half.error().message;
  EXPECT_EQ(key->id(), *id);
  EXPECT_EQ(half->id(), *id);
  EXPECT_TRUE(half->Verifies("message", key->Sign("message")));
}

TEST_F(KeyFiles, AreNeverOverwritten) {
  std::ofstream(path_) << "precious";
  EXPECT_EQ(GenerateKey(path_).error().message, path_ + ": exists already; a key is never overwritten");
  EXPECT_EQ(testing::Slurp(path_), "precious");
  EXPECT_FALSE(std::filesystem::exists(path_ + ".pub"));
}

TEST_F(KeyFiles, FollowNoLink) {
  ASSERT_EQ(::symlink("elsewhere", path_.c_str()), 0);
  EXPECT_FALSE(GenerateKey(path_));
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/elsewhere"));
}

TEST_F(KeyFiles, AreBothMadeOrNeither) {
  std::ofstream(path_ + ".pub") << "somebody's";
  EXPECT_FALSE(GenerateKey(path_));
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_EQ(testing::Slurp(path_ + ".pub"), "somebody's");
}

TEST_F(KeyFiles, ThatOthersCanReadAreRefused) {
  ASSERT_TRUE(GenerateKey(path_));
  for (const mode_t mode : {0640U, 0604U, 0660U, 0610U}) {
    ASSERT_EQ(::chmod(path_.c_str(), mode), 0);
    EXPECT_EQ(FaultOfLoading(),
              path_ + ": users other than the owner can use this private key; run: chmod 600 " + path_);
  }
  ASSERT_EQ(::chmod(path_.c_str(), 0400), 0);
  EXPECT_EQ(FaultOfLoading(), "accepted");
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(path_.c_str(), 12345, 12345), 0);
    EXPECT_NE(FaultOfLoading().find("belongs to uid 12345"), std::string::npos);
  }
}

TEST_F(KeyFiles, MustBeKeys) {
  EXPECT_NE(FaultOfLoading().find("No such file"), std::string::npos);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);  // a pipe without a writer must not block the reader
  EXPECT_EQ(FaultOfLoading(), path_ + ": not a regular file");
  std::filesystem::remove(path_);
  std::ofstream(path_) << "no key";
  ASSERT_EQ(::chmod(path_.c_str(), 0600), 0);
  EXPECT_EQ(FaultOfLoading(), path_ + ": holds no private key without a passphrase (PEM, BEGIN PRIVATE KEY)");
}

}  // namespace
}  // namespace caisson::attest
