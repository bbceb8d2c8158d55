"""JKS files that keytool made are read to the byte, damaged ones are refused.

Made by Java 17's keytool: `-genkeypair -alias client -keyalg EC -storetype JKS -storepass changeit -keypass keypass
-dname CN=client -validity 36500`, and `-importcert -alias ca -storetype JKS -storepass changeit` of a CN=ca made so.
The expected key is what `keytool -importkeystore -deststoretype PKCS12` and `openssl pkcs12 -nodes` show of it.
"""

import base64

import pytest
from cryptography import x509

from spark_kafka_eos.kafka.auth import jks

KEYSTORE = base64.b64decode(
    "/u3+7QAAAAIAAAABAAAAAQAGY2xpZW50AAABof6iwWcAAAB/MH0wDgYKKwYBBAEqAhEBAQUABGtxqVSw3Q6aqfj65fHz+xiOzz/5FWLNXI/ofE"
    "906oATgV72sMZyhmceCyHYUHggz6iBt09kaQjqStsnrstu88Ax2rqspLZCkWxgYJ5MQRMRhWIbdK+ZXHXEAAKbcSRrP7MdEFQVRUFwq35dfQAA"
    "AAEABVguNTA5AAABPzCCATswgeKgAwIBAgIJAJqv8loOW8nVMAoGCCqGSM49BAMCMBExDzANBgNVBAMTBmNsaWVudDAgFw0yNjExMjExNTA0MD"
    "FaGA8yMTI2MTAyODE1MDQwMVowETEPMA0GA1UEAxMGY2xpZW50MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEZuGSmcK/lUgMvkyeGqMXrVNJ"
    "tWnMk0u49PZZLYhtldUGGmgnM43BLKJ+phNhuHLLbLZ1hp/mLCG6zXflrhDwV6MhMB8wHQYDVR0OBBYEFMkbVhX4e1GeQGqQ7RoMhYpldQCoMA"
    "oGCCqGSM49BAMCA0gAMEUCIQDHFKjDcf3JubnYz66tBsWhZX3eQEV51IpaFRnyndU+sgIgPN+n6pPKrC6DXY1SQolQxzyJv3b6jzw2iIp9Juto"
    "u8EZIoAZw0mKdtwztnDi6jtD+o0Rzg=="
)
TRUSTSTORE = base64.b64decode(
    "/u3+7QAAAAIAAAABAAAAAgACY2EAAAGh/qLHLQAFWC41MDkAAAE4MIIBNDCB2qADAgECAgkAklM9f6weKLQwCgYIKoZIzj0EAwIwDTELMAkGA1"
    "UEAxMCY2EwIBcNMjYxMTIxMTUwNDAyWhgPMjEyNjEwMjgxNTA0MDJaMA0xCzAJBgNVBAMTAmNhMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE"
    "gC6EMKFbll7yTcxRpiynOsvKUgFdy/BU4MbBA2laNfi3q1Raotk83ImvvE59I/Poj9LGE0r+vJUQxK2mKhfJYaMhMB8wHQYDVR0OBBYEFG2tf1"
    "vry7aZPPV3ndOrqZZfzVJYMAoGCCqGSM49BAMCA0kAMEYCIQCpQ74pS/7URb92yLR/Mrs8J8rMWoKz1dC75RqD7UyrdwIhALbERSSkHK4QZ3+c"
    "Xrh0h6oAnqIU3X70FGE/KvDJt5QsIy5PT9BwztTneJIVGg7xhk0Yt5I="
)
KEY = base64.b64decode("MEECAQAwEwYHKoZIzj0CAQYIKoZIzj0DAQcEJzAlAgEBBCBCWVq9hk4X3b+S7CHpPcM8O+z8IYdHGcbE1Q+RGnkgtA==")


def common_names(certificates):
    return [x509.load_der_x509_certificate(each).subject.rfc4514_string() for each in certificates]


@pytest.mark.parametrize("password", ["changeit", None])
def test_a_key_and_its_chain_are_read(password):
    entries = jks.read(KEYSTORE, password)
    (entry,) = entries.keys
    assert entries.certificates == ()
    assert common_names(entry.chain) == ["CN=client"]
    assert jks.decrypt(entry, "keypass") == KEY


@pytest.mark.parametrize("password", ["changeit", None])
def test_a_trusted_certificate_is_read(password):
    entries = jks.read(TRUSTSTORE, password)
    assert (entries.keys, common_names(entries.certificates)) == ((), ["CN=ca"])


def test_a_wrong_password_is_noticed():
    with pytest.raises(ValueError, match="the password is wrong"):
        jks.read(TRUSTSTORE, "wrong")
    with pytest.raises(ValueError, match="the key's password is wrong"):
        jks.decrypt(jks.read(KEYSTORE, None).keys[0], "changeit")


@pytest.mark.parametrize("file", [KEYSTORE, TRUSTSTORE], ids=["keystore", "truststore"])
def test_a_file_that_was_cut_or_changed_is_refused(file):
    for position in range(len(file)):
        changed = file[:position] + bytes([file[position] ^ 1]) + file[position + 1 :]
        with pytest.raises(ValueError, match="damaged"):
            jks.read(changed, "changeit")
    for end in range(len(file) - 20):
        with pytest.raises(ValueError, match="damaged|not a JKS file"):
            jks.read(file[:end], None)


def test_a_key_that_is_not_keytools_is_refused():
    entry = jks.read(KEYSTORE, None).keys[0]
    other = entry.encrypted.replace(bytes.fromhex("2a02110101"), bytes.fromhex("2a02110102"))
    with pytest.raises(ValueError, match="not supported"):
        jks.decrypt(jks.KeyEntry(encrypted=other, chain=()), "keypass")
    for damaged in (b"", b"\x30", entry.encrypted[:40], b"\x04" + entry.encrypted[1:]):
        with pytest.raises(ValueError, match="damaged"):
            jks.decrypt(jks.KeyEntry(encrypted=damaged, chain=()), "keypass")
