"""Certificates of a CA that the tests make with OpenSSL's program."""
import os
import shutil
import ssl
import subprocess


def openssl(*arguments, stdin=None):
    done = subprocess.run(["openssl", *arguments], input=stdin, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


class Authority:
    """A CA of our own and what it signs, as files of a folder."""

    def __init__(self, folder):
        self.folder = folder
        self.key("ca")
        openssl("req", "-x509", "-key", self.at("ca.key"), "-out", self.at("ca.pem"), "-days", "30",
                "-subj", "/CN=a CA of the tests", "-addext", "keyUsage=critical,keyCertSign,cRLSign")

    def at(self, name):
        return os.path.join(self.folder, name)

    def key(self, name, kind="EC", option="ec_paramgen_curve:P-256"):
        openssl("genpkey", "-algorithm", kind, "-pkeyopt", option, "-out", self.at(name + ".key"))

    def sign(self, name, hosts="IP:127.0.0.1,DNS:localhost"):
        """NAME.pem with NAME.key."""
        if not os.path.exists(self.at(name + ".key")):
            self.key(name)
        with open(self.at("extensions"), "w", encoding="ascii") as file:
            file.write("subjectAltName=%s\n" % hosts)
        request = openssl("req", "-new", "-key", self.at(name + ".key"), "-subj", "/CN=" + name)
        openssl("x509", "-req", "-CA", self.at("ca.pem"), "-CAkey", self.at("ca.key"), "-days", "30",
                "-CAcreateserial", "-extfile", self.at("extensions"), "-out",
                self.at(name + ".pem"), stdin=request)
        return self.at(name + ".pem"), self.at(name + ".key")

    def sign_ended(self, name, extensions="", by="ca"):
        """NAME.pem with NAME.key, which ended in 2020. `openssl x509` of version 3.5 refuses negative days."""
        self.key(name)
        config, request = self.at("ended.cnf"), self.at("ended.csr")
        with open(config, "w", encoding="ascii") as file:
            file.write("[ca]\ndefault_ca=one\n[one]\ndatabase=%s\nnew_certs_dir=%s\nrand_serial=yes\n"
                       "default_md=sha256\npolicy=any\nunique_subject=no\nx509_extensions=more\n[any]\ncommonName=supplied\n"
                       "[more]\n%s" % (self.at("ended.index"), self.folder, extensions))
        with open(self.at("ended.index"), "w", encoding="ascii"):
            pass
        openssl("req", "-new", "-key", self.at(name + ".key"), "-subj", "/CN=" + name, "-out", request)
        openssl("ca", "-batch", "-notext", "-config", config, "-cert", self.at(by + ".pem"), "-keyfile", self.at(by + ".key"),
                "-startdate", "200101000000Z", "-enddate", "200102000000Z", "-in", request, "-out", self.at(name + ".pem"))

    def put(self, name, certificate="server.pem", key="server.key"):
        """In the place of the files that the server uses."""
        for source, target in ((name + ".pem", certificate), (name + ".key", key)):
            shutil.copy(self.at(source), self.at(target + ".new"))
            os.rename(self.at(target + ".new"), self.at(target))

    def client(self, **changes):
        context = ssl.create_default_context(cafile=self.at("ca.pem"))
        for name, value in changes.items():
            setattr(context, name, value)
        return context
